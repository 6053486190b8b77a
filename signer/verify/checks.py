"""Every check that the signer makes: its number, its title, and the files that make it.

The numbers are those of docs/protocol.md section 5. Search for a number (`E2`) to find the errors
that the check raises (`check="E2"`) and the sections of code that make it (`# (E2)`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    title: str
    files: tuple[str, ...]
    """From the root of the repository; each names the check's number."""


def _verify(*names: str) -> tuple[str, ...]:
    return tuple(f"signer/verify/{name}" for name in names)


CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "R0": Check("Cluster: opted in, no automatic approval", _verify("recognize.py")),
        "R1": Check("signer name; no decision yet", _verify("recognize.py")),
        "R2": Check("usages", _verify("request.py")),
        "R3": Check("requester", _verify("request.py")),
        "R4": Check("RBAC allows the requester its certificate", _verify("access.py")),
        "P1": Check("size limits", ("common/csr.py", "common/pkcs10.py", "common/evidence.py")),
        "P2": Check("PEM blocks", ("common/csr.py",)),
        "P3": Check(
            "request: signature and key",
            ("common/pkcs10_key.py", *_verify("parse.py", "weak_keys.py")),
        ),
        "P4": Check("subject", ("common/pkcs10.py",)),
        "P5": Check("extensions", ("common/pkcs10.py", *_verify("parse.py"))),
        "P6": Check("attestation data", ("common/evidence.py", *_verify("request.py"))),
        "C1": Check("challenge: age and key", _verify("answer.py")),
        "A1": Check("attestation key", _verify("attestation_key.py", "weak_keys.py")),
        "Q1": Check("quote: form and signature", _verify("quote.py")),
        "Q2": Check("quote: binding to the challenge", _verify("answer.py", "quote.py")),
        "Q3": Check("PCRs: selection and digest", _verify("pcrs.py")),
        "Q4": Check(
            "PCRs: policy and event log", _verify("answer.py", "pcrs.py", "measured_boot.py")
        ),
        "M1": Check("Machine with the provider ID", _verify("machine.py")),
        "M2": Check("Machine and Cluster ready for a first join", _verify("machine.py")),
        "M3": Check("node name", _verify("machine.py")),
        "M4": Check("Node with the node name", _verify("machine.py")),
        "M5": Check("node requests its own name", _verify("request.py")),
        "M6": Check("nodeRef and Nodes with the provider ID", _verify("machine.py")),
        "M7": Check("first join of a new Machine", _verify("machine.py")),
        "E1": Check(
            "endorsement key: template and strength", _verify("endorsement_key.py", "weak_keys.py")
        ),
        "E2": Check(
            "endorsement key: trust",
            _verify(
                "endorsement_trust.py", "registered_keys.py", "x509/endorsement_certificate.py"
            ),
        ),
        "E3": Check("endorsement key: not banned, not in use", _verify("claims.py")),
        "K1": Check("claim of the endorsement key", _verify("claims.py", "claim_writes.py")),
        "K2": Check("claim of the node name", _verify("claims.py", "claim_writes.py")),
        "K3": Check("second write of the endorsement key", _verify("claim_writes.py")),
        "K4": Check(
            "certificate with which the node filed the request",
            _verify("credentials.py", "claim_writes.py"),
        ),
        "S1": Check("serving names: form", _verify("serving_names.py")),
        "S2": Check("serving names: addresses of the Machine", _verify("serving_names.py")),
        "S3": Check("serving names: no address of others", _verify("serving_names.py")),
        "I1": Check("certificate", ("signer/issue/certificate.py",)),
    }
)
