"""Trust anchors: the authorities and revocation lists that operators configured, as one value.

Vendors' bundles hold certificates that no library reads (STM's with padded serials), so those are
left out and told: a missing authority lets nobody in. A missing revocation list would, so one that
cannot be read or does not tell of all certificates is refused, and so is a bundle without a root.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from OpenSSL import crypto

from signer.verify.x509.fields import (
    CertificateFields,
    CertificateMalformed,
    crl_extensions,
    crl_issuer,
    read_fields,
)

_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)
_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_PARTIAL: Final = {
    "2.5.29.27": "a delta list",
    "2.5.29.28": "a list of one distribution point",
}
"""Extensions by which a list says that it does not tell of all certificates of its issuer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAnchor:
    """One configured authority; `source` names file and place."""

    source: str
    fields: CertificateFields
    loaded: crypto.X509


@dataclass(frozen=True, slots=True, kw_only=True)
class Crl:
    """One configured revocation list."""

    source: str
    issuer: bytes
    """The issuer's name as it is written."""
    loaded: x509.CertificateRevocationList


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAnchors:
    """Configured authorities and revocation lists; `load_trust_anchors` makes it."""

    roots: tuple[TrustAnchor, ...]
    intermediates: tuple[TrustAnchor, ...]
    revocation_lists: tuple[Crl, ...]
    unreadable: tuple[str, ...]
    """Configured authorities that were left out, for the operator's log."""
    unmatched_lists: tuple[str, ...]
    """Sources of the revocation lists that no configured authority signed."""


NO_ANCHORS: Final = TrustAnchors(
    roots=(), intermediates=(), revocation_lists=(), unreadable=(), unmatched_lists=()
)
"""For policies that ask for no certificate; it validates nothing."""


def load_trust_anchors(
    authorities: Mapping[str, bytes], revocation_lists: Mapping[str, bytes]
) -> TrustAnchors:
    """Read files (name to content, PEM or DER, one or several in a PEM file) into anchors.

    Certificates that name themselves as issuer are roots, the others intermediates.

    Raises:
        ValueError: there is no root in them, or a revocation list cannot be read or is not a full
            one; all at once.

    """
    unreadable: list[str] = []
    problems: list[str] = []
    anchors = [
        anchor
        for source, content in _split(authorities, _CERTIFICATE, unreadable)
        for anchor in _anchor(source, content, unreadable)
    ]
    lists = [
        found
        for source, content in _split(revocation_lists, _LIST, problems)
        for found in _revocation_list(source, content, problems)
    ]
    roots = tuple(a for a in anchors if a.fields.issuer == a.fields.subject)
    if not roots:
        problems.append("there is no root certificate among the authorities")
        problems.extend(unreadable)
    if problems:
        raise ValueError("; ".join(problems))
    return TrustAnchors(
        roots=roots,
        intermediates=tuple(a for a in anchors if a.fields.issuer != a.fields.subject),
        revocation_lists=tuple(lists),
        unreadable=tuple(unreadable),
        unmatched_lists=tuple(crl.source for crl in lists if not _has_signer(crl, anchors)),
    )


def _has_signer(crl: Crl, anchors: list[TrustAnchor]) -> bool:
    keys = (a.fields.public_key for a in anchors if a.fields.public_key is not None)
    return any(crl.loaded.is_signature_valid(key) for key in keys)


def _split(
    files: Mapping[str, bytes], block: re.Pattern[bytes], problems: list[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield each PEM block of a file, or the whole file, which is then DER."""
    for name, content in files.items():
        blocks = block.findall(content)
        if not blocks and b"-----BEGIN" in content:
            problems.append(f"{name}: no PEM block of the kind that is expected")
        elif not blocks:
            yield name, content
        for number, text in enumerate(blocks, start=1):
            yield (f"{name} ({number})" if len(blocks) > 1 else name), text


def _anchor(source: str, content: bytes, problems: list[str]) -> Iterator[TrustAnchor]:
    pem = content.startswith(b"-----")
    try:
        loaded = crypto.load_certificate(
            crypto.FILETYPE_PEM if pem else crypto.FILETYPE_ASN1, content
        )
        fields = read_fields(crypto.dump_certificate(crypto.FILETYPE_ASN1, loaded))
    except (crypto.Error, CertificateMalformed):
        problems.append(f"{source}: not a certificate that OpenSSL can read")
        return
    yield TrustAnchor(source=source, fields=fields, loaded=loaded)


def _revocation_list(source: str, content: bytes, problems: list[str]) -> Iterator[Crl]:
    load = x509.load_pem_x509_crl if content.startswith(b"-----") else x509.load_der_x509_crl
    try:
        loaded = load(content)
        issuer = crl_issuer(loaded.tbs_certlist_bytes)
        extensions = crl_extensions(loaded.tbs_certlist_bytes)
    except (ValueError, x509.InvalidVersion):
        problems.append(f"{source}: not a revocation list")
        return
    for name, extension in extensions.items():
        # RFC 5280, section 5.2: nothing may rest on a list with a critical one that is not known.
        if name in _PARTIAL or extension.critical:
            what = _PARTIAL.get(name, f"a list with the critical extension {name}")
            problems.append(f"{source}: {what}; bring the full list of its issuer")
            return
    yield Crl(source=source, issuer=issuer, loaded=loaded)
