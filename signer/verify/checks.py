"""Every check that the signer makes: its number, its title, and its place in the order.

The verifying functions report each step that passed by its constant, and `explain` shows the steps
of an order that were not reached. So a new check is one entry in `CHECKS` and one in a step.

The numbers are those of docs/protocol.md section 5. Search for a number (`E2`) to find the errors
that the check raises (`check="E2"`) and the sections of code that make it (`# (E2)`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CHECKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "R0": "Cluster: opted in, no automatic approval",
        "R1": "signer name; no decision yet",
        "R2": "usages",
        "R3": "requester",
        "R4": "RBAC allows the requester its certificate",
        "P1": "size limits",
        "P2": "PEM blocks",
        "P3": "request: signature and key",
        "P4": "subject",
        "P5": "extensions",
        "P6": "attestation data",
        "C1": "challenge: age and key",
        "A1": "attestation key",
        "A2": "certificate of the attestation key",
        "Q1": "quote: form and signature",
        "Q2": "quote: binding to the challenge",
        "Q3": "PCRs: selection and digest",
        "Q4": "PCRs: policy and event log",
        "M1": "Machine with the provider ID",
        "M2": "Machine and Cluster ready for a first join",
        "M3": "node name",
        "M4": "Node with the node name",
        "M5": "node requests its own name",
        "M6": "nodeRef and Nodes with the provider ID",
        "M7": "first join of a new Machine",
        "E1": "endorsement key: template and strength",
        "E2": "endorsement key: trust",
        "E3": "endorsement key: not banned, not in use",
        "K1": "claim of the endorsement key",
        "K2": "claim of the node name",
        "K3": "second write of the endorsement key",
        "K4": "certificate with which the node filed the request",
        "S1": "serving names: form",
        "S2": "serving names: addresses of the Machine",
        "S3": "serving names: no address of others",
        "I1": "certificate",
    }
)
"""The title of each check, by its number."""

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
MACHINE: Final = tuple((number,) for number in ("M5", "M1", "M2", "M3", "M4", "M6", "M7"))
"""Each by itself: in an answer, those after a refusal are made too."""
TRUST: Final[Step] = ("A2", "E2")
NO_CONFLICT: Final[Step] = ("E3",)
OWN_NAME: Final[Step] = ("M5",)
CLAIMED_MACHINE: Final[Step] = ("M3", "E3", "M1")
UNATTESTED_MACHINE: Final[Step] = ("M1", "M3", "M4", "M6")
SERVING_NAMES: Final[Step] = ("S1", "S2", "S3")
CLAIMS: Final[Step] = ("K1", "K4", "K2", "K3")

OFFER_ORDER: Final = (
    *(CLUSTER, FORM, REQUESTER, ATTESTATION_KEY),
    *(*MACHINE, ENDORSEMENT_KEY, TRUST, NO_CONFLICT),
)
"""All steps of an offer. The cheap checks against caches come before those of the keys."""
ANSWER_ORDER: Final = (
    *(CLUSTER, FORM, REQUESTER, CHALLENGE, ATTESTATION_KEY, ENDORSEMENT_KEY),
    *(QUOTE, PCR_DIGEST, PCR_POLICY, *MACHINE, TRUST, NO_CONFLICT),
)
"""All steps of an answer but `CLAIMS`. Only an answer that is proved costs requests to the API."""
SERVING_ORDER: Final = (*ANSWER_ORDER, SERVING_NAMES)
"""All steps of an answer that requests a serving certificate, but `CLAIMS`."""
_BUILTIN_START: Final = (CLUSTER, FORM_WITHOUT_ATTESTATION, REQUESTER, OWN_NAME)
BUILTIN_ORDER: Final = (*_BUILTIN_START, CLAIMED_MACHINE, SERVING_NAMES)
"""All steps of a request to the built-in serving signer."""
SERVING_ONLY_ORDER: Final = (*_BUILTIN_START, UNATTESTED_MACHINE, SERVING_NAMES)
"""The same with a policy of mode ServingOnly."""
