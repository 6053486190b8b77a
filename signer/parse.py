"""From the bytes of a request to values that the checks can judge (P1 to P6)."""

from dataclasses import dataclass

from common.csr import Pkcs10
from common.evidence import Answer, Offer
from signer.model import Csr
from signer.recognise import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedOffer:
    """CSR A: a request and the keys that it offers."""

    request: Pkcs10
    evidence: Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAnswer:
    """CSR B: the same request, and what the TPM says."""

    request: Pkcs10
    evidence: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedServing:
    """A request to the built-in serving signer, without attestation."""

    request: Pkcs10


def parse(csr: Csr, kind: Kind) -> ParsedOffer | ParsedAnswer | ParsedServing:
    """Read the request strictly.

    Raises:
        Denied: with the reason. On `UnsupportedVersion` the annotation `supported-versions` is
            written before the CSR is denied.

    """
    raise NotImplementedError
