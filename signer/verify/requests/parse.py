"""Parses the bytes of a request into typed values (P1 to P6).

The requester wrote all of these bytes. A parsed value is well-formed and signed by its own key; it
proves nothing yet. Source: docs/protocol.md sections 2, 4 and 5.
"""

import binascii
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from common.errors import ExtensionNotAllowed, TooLarge
from common.evidence import Answer, Offer, decode_attestation_data
from common.names import PEM_DATA
from common.requests.csr import decode_plain_request, decode_request
from common.requests.pkcs10 import Pkcs10, parse_pkcs10
from signer.errors import ProviderIDMissing, RequestKeyWeak
from signer.kinds.csr import Csr
from signer.verify.requests.recognize import CsrKind
from signer.verify.weak_keys import WeakKey, reject_weak_key

MAX_ANNOTATIONS: Final = 32 * 1024
"""Bytes of all annotations of a CSR as JSON (P1): four times the largest challenge. The API server
accepts 256 KiB from the requester, and each watch event of the CSR repeats them."""

_DATA_BEGIN: Final = f"-----BEGIN {PEM_DATA}-----\n".encode()
_START_OF_DATA: Final = 64
"""Characters of base64 in the first line of a PEM block: version and kind come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedOffer:
    """CSR A: a request and the TPM keys that it offers."""

    request: Pkcs10
    provider_id: str
    evidence: Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAnswer:
    """CSR B: the same request and the TPM's answer to the challenge."""

    request: Pkcs10
    provider_id: str
    evidence: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedKubeletServing:
    """A request to the built-in serving signer, without attestation."""

    request: Pkcs10


ParsedRequest = ParsedOffer | ParsedAnswer | ParsedKubeletServing


def parse_request(csr: Csr, kind: CsrKind) -> ParsedRequest:
    """Parse a request strictly (P1 to P6).

    Raises:
        UnsupportedVersion: write the annotation `supported-versions`, then deny.
        Denied: any other defect, with its reason.

    """
    if kind is CsrKind.BUILTIN_SERVING:
        return ParsedKubeletServing(request=parse_plain_request(csr))
    _require_small_annotations(csr)
    der, data = decode_request(csr.request)
    request = _parse_client_pkcs10(der) if kind is CsrKind.CLIENT else _parse_pkcs10(der)
    provider_id = _require_provider_id(request)
    evidence = decode_attestation_data(data)
    if isinstance(evidence, Answer):
        return ParsedAnswer(request=request, provider_id=provider_id, evidence=evidence)
    return ParsedOffer(request=request, provider_id=provider_id, evidence=evidence)


def parse_plain_request(csr: Csr) -> Pkcs10:
    """Parse a request without attestation (P1 to P5). Raises `Denied` for any defect."""
    _require_small_annotations(csr)
    return _parse_pkcs10(decode_plain_request(csr.request))


def require_no_names(request: Pkcs10) -> None:
    """P5: require that a client request has no subject alternative names."""
    if request.subject_alt_names is not None:
        raise ExtensionNotAllowed("a client certificate has no subject alternative names")


def is_probable_answer(request: bytes) -> bool:
    """Return whether unverified bytes seem to be an answer, as the authenticator encodes it.

    It decides only when the request has its turn, so it reads no more than the start of the data.
    """
    begin = request.find(_DATA_BEGIN)
    if begin < 0:
        return False
    begin += len(_DATA_BEGIN)
    try:
        start = binascii.a2b_base64(request[begin : begin + _START_OF_DATA])
    except binascii.Error:
        return False
    return b'"kind":"answer"' in start


def _require_small_annotations(csr: Csr) -> None:
    """P1: limit what a requester stores in the object."""
    if csr.annotations_size > MAX_ANNOTATIONS:
        raise TooLarge("the annotations of the request are over 32 KiB")


@lru_cache(maxsize=1024)
def _parse_client_pkcs10(der: bytes) -> Pkcs10:
    """P3 to P5 of a client request, with a provider ID and without names.

    Offer and answer have the same request, and the result depends on its bytes alone. So it is
    cached. A request without names has at most 2 KiB, since all its other fields have limits. A
    refusal is not cached.
    """
    request = _parse_pkcs10(der)
    _require_provider_id(request)
    require_no_names(request)
    return request


def _parse_pkcs10(der: bytes) -> Pkcs10:
    """P3 to P5: parse the PKCS#10 request and reject a key that is known to be weak."""
    request = parse_pkcs10(der)
    try:
        reject_weak_key(request.public_key)
    except WeakKey as error:
        raise RequestKeyWeak(f"the kubelet's key is weak: {error}") from None
    return request


def _require_provider_id(request: Pkcs10) -> str:
    """P5: require the provider ID, which names the Machine."""
    if request.provider_id is None:
        raise ProviderIDMissing("the request has no provider ID extension")
    return request.provider_id
