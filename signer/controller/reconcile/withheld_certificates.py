"""Certificates that were signed and not released yet: a retry must not sign another one.

Each certificate is recorded in the claim before its release. If a later write fails, every attempt
would record one more. One that turns out never to have been released leaves the claim again.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.issue.authority import CertificateAuthority
from signer.kinds.csr import Csr
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedCertificate:
    """A certificate, and the CSR that it was signed for."""

    csr_name: str
    csr_uid: str
    inputs: _Inputs
    certificate: WithheldCertificate
    released: bool = False

    @property
    def node_name(self) -> str:
        """Return the name of the node in whose claim it may be recorded."""
        return self.inputs.node_name


class WithheldCertificates:
    """The certificates of one cluster by UID of their CSR, for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._signed: OrderedDict[str, SignedCertificate] = OrderedDict()

    def get_or_sign(  # noqa: PLR0913, PLR0917 - what the certificate says; the last is not known before
        self,
        csr: Csr,
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
            earlier = self._signed.get(csr.uid)
        if (
            earlier is not None
            and earlier.inputs == inputs
            and earlier.certificate.not_after <= not_after
        ):
            return earlier.certificate
        certificate = sign(group)
        with self._lock:
            self._signed[csr.uid] = SignedCertificate(
                csr_name=csr.name, csr_uid=csr.uid, inputs=inputs, certificate=certificate
            )
            self._signed.move_to_end(csr.uid)
            if len(self._signed) > _MAX_CERTIFICATES:
                self._signed.popitem(last=False)
        return certificate

    def note_release(self, csr_uid: str) -> None:
        """Note that a CSR has got its certificate."""
        with self._lock:
            if csr_uid in self._signed:
                self._signed[csr_uid] = replace(self._signed[csr_uid], released=True)

    def unreleased(self, csr_name: str) -> Sequence[SignedCertificate]:
        """Return the client certificates for CSRs of this name that were not released."""
        with self._lock:
            return [
                signed
                for signed in self._signed.values()
                if signed.csr_name == csr_name
                and not signed.released
                and signed.certificate.credential_id
            ]

    def forget(self, csr_name: str) -> None:
        """Forget the certificates for CSRs of this name, of which none waits any longer."""
        with self._lock:
            for uid in [u for u, s in self._signed.items() if s.csr_name == csr_name]:
                del self._signed[uid]
