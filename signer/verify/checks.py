"""Every check that the signer makes: its number, its title, its files, and its place in the order.

The verifying functions report each step that passed by its constant, and `explain` shows the steps
of an order that were not reached. So a new check is one entry in `CHECKS` and one in a step.

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
        "R0": Check("Cluster: opted in, no automatic approval", _verify("requests/recognize.py")),
        "R1": Check("signer name; no decision yet", _verify("requests/recognize.py")),
        "R2": Check("usages", _verify("requests/request.py")),
        "R3": Check("requester", _verify("requests/request.py")),
        "R4": Check("RBAC allows the requester its certificate", _verify("requests/access.py")),
        "P1": Check(
            "size limits",
            (
                "common/requests/csr.py",
                "common/requests/pkcs10.py",
                "common/evidence.py",
                *_verify("requests/parse.py"),
            ),
        ),
        "P2": Check("PEM blocks", ("common/requests/csr.py",)),
        "P3": Check(
            "request: signature and key",
            ("common/requests/pkcs10_key.py", *_verify("requests/parse.py", "weak_keys.py")),
        ),
        "P4": Check("subject", ("common/requests/pkcs10.py",)),
        "P5": Check("extensions", ("common/requests/pkcs10.py", *_verify("requests/parse.py"))),
        "P6": Check("attestation data", ("common/evidence.py", *_verify("requests/request.py"))),
        "C1": Check("challenge: age and key", _verify("answer.py")),
        "A1": Check("attestation key", _verify("attestation/attestation_key.py", "weak_keys.py")),
        "A2": Check(
            "certificate of the attestation key",
            _verify("machines/attestation_certificate.py"),
        ),
        "Q1": Check("quote: form and signature", _verify("attestation/quote.py")),
        "Q2": Check(
            "quote: binding to the challenge", _verify("answer.py", "attestation/quote.py")
        ),
        "Q3": Check("PCRs: selection and digest", _verify("attestation/quoted_pcrs.py")),
        "Q4": Check(
            "PCRs: policy and event log",
            _verify(
                "answer.py",
                "attestation/quoted_pcrs.py",
                "attestation/signed_pcrs.py",
                "attestation/measured_boot.py",
            ),
        ),
        "M1": Check("Machine with the provider ID", _verify("machines/machine.py")),
        "M2": Check("Machine and Cluster ready for a first join", _verify("machines/machine.py")),
        "M3": Check("node name", _verify("machines/machine.py", "kubelet_serving.py")),
        "M4": Check("Node with the node name", _verify("machines/machine.py")),
        "M5": Check("node requests its own name", _verify("requests/request.py")),
        "M6": Check(
            "nodeRef and Nodes with the provider ID",
            _verify("machines/machine.py", "machines/endorsement_trust.py"),
        ),
        "M7": Check("first join of a new Machine", _verify("machines/machine.py")),
        "E1": Check(
            "endorsement key: template and strength",
            _verify("attestation/endorsement_key.py", "weak_keys.py"),
        ),
        "E2": Check(
            "endorsement key: trust",
            _verify(
                "machines/endorsement_trust.py",
                "machines/registered_keys.py",
                "machines/attestation_certificate.py",
                "x509/endorsement_certificate.py",
            ),
        ),
        "E3": Check("endorsement key: not banned, not in use", _verify("machines/claims.py")),
        "K1": Check(
            "claim of the endorsement key",
            _verify("machines/claims.py", "machines/claim_writes.py"),
        ),
        "K2": Check(
            "claim of the node name", _verify("machines/claims.py", "machines/claim_writes.py")
        ),
        "K3": Check("second write of the endorsement key", _verify("machines/claim_writes.py")),
        "K4": Check(
            "certificate with which the node filed the request",
            _verify("requests/credentials.py", "machines/claim_writes.py"),
        ),
        "S1": Check("serving names: form", _verify("machines/serving_names.py")),
        "S2": Check(
            "serving names: addresses of the Machine", _verify("machines/serving_names.py")
        ),
        "S3": Check("serving names: no address of others", _verify("machines/serving_names.py")),
        "I1": Check("certificate", ("signer/issue/certificate.py", "signer/issue/lint.py")),
    }
)

Step = tuple[str, ...]
"""Checks that pass together, in their order."""

CLUSTER: Final[Step] = ("R1", "R0")
FORM: Final[Step] = ("P1", "P2", "P3", "P4", "P5", "P6")
FORM_WITHOUT_ATTESTATION: Final[Step] = ("P1", "P2", "P3", "P4", "P5")
REQUESTER: Final[Step] = ("R2", "R3")
CHALLENGE: Final[Step] = ("C1",)
ATTESTATION_KEY: Final[Step] = ("A1",)
ENDORSEMENT_KEY: Final[Step] = ("E1",)
QUOTE: Final[Step] = ("Q1", "Q2")
PCR_DIGEST: Final[Step] = ("Q3",)
PCR_POLICY: Final[Step] = ("Q4",)
MACHINE: Final[Step] = ("M5", "M1", "M2", "M3", "M4", "M6", "M7")
TRUST: Final[Step] = ("A2", "E2")
NO_CONFLICT: Final[Step] = ("E3",)
OWN_NAME: Final[Step] = ("M5",)
CLAIMED_MACHINE: Final[Step] = ("M3", "E3", "M1")
UNATTESTED_MACHINE: Final[Step] = ("M1", "M3", "M4", "M6")
SERVING_NAMES: Final[Step] = ("S1", "S2", "S3")
CLAIMS: Final[Step] = ("K1", "K4", "K2", "K3")

OFFER_ORDER: Final = (
    *(CLUSTER, FORM, REQUESTER, ATTESTATION_KEY),
    *(MACHINE, ENDORSEMENT_KEY, TRUST, NO_CONFLICT),
)
"""All steps of an offer. The cheap checks against caches come before those of the keys."""
ANSWER_ORDER: Final = (
    *(CLUSTER, FORM, REQUESTER, CHALLENGE, ATTESTATION_KEY, ENDORSEMENT_KEY),
    *(QUOTE, PCR_DIGEST, PCR_POLICY, MACHINE, TRUST, NO_CONFLICT),
)
"""All steps of an answer but `CLAIMS`. Only an answer that is proved costs requests to the API."""
SERVING_ORDER: Final = (*ANSWER_ORDER, SERVING_NAMES)
"""All steps of an answer that requests a serving certificate, but `CLAIMS`."""
_BUILTIN_START: Final = (CLUSTER, FORM_WITHOUT_ATTESTATION, REQUESTER, OWN_NAME)
BUILTIN_ORDER: Final = (*_BUILTIN_START, CLAIMED_MACHINE, SERVING_NAMES)
"""All steps of a request to the built-in serving signer."""
SERVING_ONLY_ORDER: Final = (*_BUILTIN_START, UNATTESTED_MACHINE, SERVING_NAMES)
"""The same with a policy of mode ServingOnly."""
