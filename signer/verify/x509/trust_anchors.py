"""Trust anchors: the authorities and revocation lists (CRLs) that an operator configured.

An authority that no library can parse is skipped and reported: without it, fewer certificates are
trusted. (Vendors' bundles hold such certificates; STM's have serial numbers with padding.) An
unreadable or partial CRL is an error, for without it more certificates are trusted. So is a bundle
without a root. A CRL that no configured authority signed is reported in `unmatched_lists`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from OpenSSL import crypto

from common.public_keys import spki
from signer.verify.x509.fields import CertificateFields, crl_extensions, read_fields
from signer.verify.x509.lenient_der import CertificateMalformed

_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)
_CRL: Final = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----", re.DOTALL)
_PARTIAL: Final = {
    "2.5.29.27": "a delta list",
    "2.5.29.28": "a list of one distribution point",
}
"""Extensions of CRLs that do not cover all certificates of their issuer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAnchor:
    """One configured authority; `source` is the file, and the position in it."""

    source: str
    fields: CertificateFields
    loaded: crypto.X509


@dataclass(frozen=True, slots=True, kw_only=True)
class Crl:
    """One configured revocation list; `source` is the file, and the position in it."""

    source: str
    loaded: x509.CertificateRevocationList
    signer_spki: bytes | None
    """SubjectPublicKeyInfo of the configured authority that signed it; None if unknown."""

    def is_issued_by(self, authority: CertificateFields) -> bool:
        """Return whether the authority's key signed this list.

        The issuer's name does not decide: an authority may write its name in several ways
        (PrintableString or UTF8String, upper or lower case), and other keys may use the same name.
        """
        if authority.public_key is None:
            return False
        if self.signer_spki is not None:
            return self.signer_spki == spki(authority.public_key)
        return self.loaded.is_signature_valid(authority.public_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAnchors:
    """Configured authorities and revocation lists; made by `load_trust_anchors`."""

    roots: tuple[TrustAnchor, ...]
    intermediates: tuple[TrustAnchor, ...]
    revocation_lists: tuple[Crl, ...]
    unreadable: tuple[str, ...]
    """Skipped authorities and the reason of each, for the operator's log."""
    unmatched_lists: tuple[str, ...]
    """Sources of the revocation lists that no configured authority signed.

    Such a list revokes nothing, except below an authority that a TPM sends. The operator needs an
    alarm: the list is of another vendor, or its authority is missing from the bundle.
    """


NO_ANCHORS: Final = TrustAnchors(
    roots=(), intermediates=(), revocation_lists=(), unreadable=(), unmatched_lists=()
)
"""For policies that need no certificate: no certificate is valid under it."""


def load_trust_anchors(
    authorities: Mapping[str, bytes], revocation_lists: Mapping[str, bytes]
) -> TrustAnchors:
    """Parse an operator's files, given by name. A file is DER, or PEM with one or more blocks.

    Certificates whose issuer equals their subject are roots, the others intermediates. Raises
    `ValueError`: there is no root, or a revocation list is unreadable or partial. The message lists
    all problems.
    """
    unreadable: list[str] = []
    problems: list[str] = []
    anchors = [
        anchor
        for source, content in _split(authorities, _CERTIFICATE, unreadable)
        for anchor in _load_authority(source, content, unreadable)
    ]
    lists = [
        crl
        for source, content in _split(revocation_lists, _CRL, problems)
        for crl in _load_crl(source, content, anchors, problems)
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
        unmatched_lists=tuple(crl.source for crl in lists if crl.signer_spki is None),
    )


def _split(
    files: Mapping[str, bytes], block: re.Pattern[bytes], problems: list[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield source and content of each PEM block, or of the whole file if it is DER."""
    for name, content in files.items():
        blocks = block.findall(content)
        if not blocks and b"-----BEGIN" in content:
            problems.append(f"{name}: no PEM block of the expected kind")
        elif not blocks:
            yield name, content
        for number, text in enumerate(blocks, start=1):
            yield (f"{name} ({number})" if len(blocks) > 1 else name), text


def _load_authority(source: str, content: bytes, problems: list[str]) -> Iterator[TrustAnchor]:
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


def _load_crl(
    source: str, content: bytes, anchors: Iterable[TrustAnchor], problems: list[str]
) -> Iterator[Crl]:
    load = x509.load_pem_x509_crl if content.startswith(b"-----") else x509.load_der_x509_crl
    try:
        loaded = load(content)
        extensions = crl_extensions(loaded.tbs_certlist_bytes)
    except (ValueError, x509.InvalidVersion):
        problems.append(f"{source}: not a revocation list")
        return
    for name, extension in extensions.items():
        # RFC 5280, section 5.2: a list with an unknown critical extension decides nothing.
        if name in _PARTIAL or extension.critical:
            what = _PARTIAL.get(name, f"a list with the critical extension {name}")
            problems.append(f"{source}: {what}; configure the full list of its issuer")
            return
    yield Crl(source=source, loaded=loaded, signer_spki=_find_signer(loaded, anchors))


def _find_signer(
    crl: x509.CertificateRevocationList, anchors: Iterable[TrustAnchor]
) -> bytes | None:
    keys = (a.fields.public_key for a in anchors if a.fields.public_key is not None)
    return next((spki(key) for key in keys if crl.is_signature_valid(key)), None)
