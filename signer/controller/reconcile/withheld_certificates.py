"""Certificates that were signed and not released yet: a retry must not sign another one.

Each certificate is recorded in the claim before its release. If a later write fails, every attempt
would record one more.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.issue.authority import CertificateAuthority
from signer.verify.answer import VerifiedAnswer
from signer.verify.machines.claim_writes import WithheldCertificate
from signer.verify.machines.serving_names import ServingNames

_MAX_CERTIFICATES: Final = 200
"""Of one cluster. An older one is signed again."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What a certificate says, except its time and serial number."""

    node_name: str
    group: str
    public_key: bytes
    serving_names: ServingNames | None
    issuer: x509.Certificate

    @classmethod
    def of(cls, verified: VerifiedAnswer, group: str, authority: CertificateAuthority) -> "_Inputs":
        key = verified.public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        node_name, names = verified.holder.node_name, verified.serving_names
        return cls(node_name, group, key, names, authority.certificate)


class WithheldCertificates:
    """The certificates of one cluster by UID of their CSR, for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._certificates: OrderedDict[str, tuple[_Inputs, WithheldCertificate]] = OrderedDict()

    def get_or_sign(  # noqa: PLR0913, PLR0917 - what the certificate says; the last is not known before
        self,
        csr_uid: str,
        verified: VerifiedAnswer,
        authority: CertificateAuthority,
        not_after: datetime,
        sign: Callable[[str], WithheldCertificate],
        group: str,
    ) -> WithheldCertificate:
        """Return the certificate of an earlier attempt, or else a new one.

        An earlier certificate is used only if it says the same, since a hostile API server may give
        two CSRs one UID, and if it does not expire after `not_after`.
        """
        inputs = _Inputs.of(verified, group, authority)
        with self._lock:
            earlier = self._certificates.get(csr_uid)
        if earlier is not None:
            said, certificate = earlier
            if said == inputs and certificate.not_after <= not_after:
                return certificate
        certificate = sign(group)
        with self._lock:
            self._certificates[csr_uid] = inputs, certificate
            self._certificates.move_to_end(csr_uid)
            if len(self._certificates) > _MAX_CERTIFICATES:
                self._certificates.popitem(last=False)
        return certificate

    def forget(self, csr_uid: str) -> None:
        """Forget the certificate of a CSR that waits no longer."""
        with self._lock:
            self._certificates.pop(csr_uid, None)
