"""A TPM in memory: `authenticator.tpm.device.Tpm` for tests that need no swtpm.

It has real keys of the real templates, ActivateCredential by the specification, and quotes that
verify. ActivateCredential shares no code with the MakeCredential of the signer. The contract test
runs over this fake and over swtpm.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES

from authenticator.errors import (
    CredentialNotForThisTpm,
    PcrBankNotAllocated,
    PcrSelectionUnsupported,
)
from authenticator.tpm.device import DeviceAttestationKey, DeviceEndorsementKey, Quote
from authenticator.tpm.templates import ATTESTATION_TEMPLATES, ENDORSEMENT_TEMPLATES
from common.errors import AttestationError
from common.tpm.attest import Attest, ClockInfo
from common.tpm.constants import (
    BANKS,
    HASHES,
    PCR_COUNT,
    TPM_ALG_ECDSA,
    TPM_ALG_RSASSA,
    TPM_ALG_SHA256,
    TPM_ECC_NIST_P256,
)
from common.tpm.public import EccParameters, EccPoint, PublicArea, RsaParameters
from common.tpm.reader import Reader, StructureMalformed, pack_uints
from common.tpm.signature import EcdsaValue, Signature

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
EndorsementName = Literal["L-1", "L-2", "H-1", "H-2", "H-3", "H-6"]
"""As the TCG EK Credential Profile names its templates."""

_TEMPLATES = {template.name: template.public for template in ENDORSEMENT_TEMPLATES["auto"]}
_CODES: dict[str, hashes.HashAlgorithm] = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384()}


@cache
def _key_of_seed(template: PublicArea, seed: str) -> PrivateKey:
    """Return the key of a seed and template; it is the same for the whole test run."""
    assert seed
    match template.parameters:
        case RsaParameters() as parameters:
            return rsa.generate_private_key(65537, parameters.key_bits)
        case EccParameters() as parameters:
            p256 = parameters.curve == TPM_ECC_NIST_P256
            return ec.generate_private_key(ec.SECP256R1() if p256 else ec.SECP384R1())


def _public(template: PublicArea, key: PrivateKey) -> PublicArea:
    """Return the public area of the template with this key, as TPM2_CreatePrimary does."""
    if isinstance(key, rsa.RSAPrivateKey):
        n = key.public_key().public_numbers().n
        return replace(template, unique=n.to_bytes(key.key_size // 8, "big"))
    numbers, size = key.public_key().public_numbers(), key.key_size // 8
    return replace(
        template, unique=EccPoint(x=pack_uints((numbers.x, size)), y=pack_uints((numbers.y, size)))
    )


def _booted(seed: str) -> dict[int, bytes]:
    """Return PCR values that all differ, also between seeds."""
    return {i: hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in range(PCR_COUNT)}


@dataclass
class _Object:
    """A key in the TPM."""

    public: PublicArea
    private: PrivateKey


class FakeTpm:
    """One TPM. Instances with equal seeds have the same keys.

    A test may change `pcrs` (bank to index to digest). A bank that is absent is not allocated.
    Each of the next calls raises one of `errors`, before it does anything else.
    """

    def __init__(
        self,
        seed: str = "tpm",
        *,
        endorsement: EndorsementName = "L-1",
        attestation: Literal["ecc", "rsa"] = "ecc",
        certificates: Sequence[bytes] = (),
    ) -> None:
        self._endorsement = self._create(_TEMPLATES[endorsement], seed)
        ecc, rsa_ = ATTESTATION_TEMPLATES
        self._attestation = self._create(ecc if attestation == "ecc" else rsa_, seed)
        self.certificates = tuple(certificates)
        self.pcrs: dict[str, dict[int, bytes]] = {"sha256": _booted(seed)}
        self.errors: list[AttestationError] = []
        self.calls: list[str] = []

    def endorsement_key(self) -> DeviceEndorsementKey:
        self._called("endorsement_key")
        public = self._endorsement.public.to_tpm2b()
        return DeviceEndorsementKey(public=public, certificates=self.certificates)

    def attestation_key(self) -> DeviceAttestationKey:
        self._called("attestation_key")
        return DeviceAttestationKey(public=self._attestation.public.to_tpm2b())

    def activate_credential(self, credential_blob: bytes, encrypted_secret: bytes) -> bytes:
        self._called("activate_credential")
        try:
            integrity, encrypted = _read_blob(credential_blob)
            seed = self._seed(_whole(encrypted_secret))
            return self._open(seed, integrity, encrypted)
        except (StructureMalformed, ValueError) as error:
            raise CredentialNotForThisTpm("made for another TPM or key") from error

    def quote(self, selection: Mapping[str, Sequence[int]], extra_data: bytes) -> Quote:
        self._called("quote")
        pcrs = self._selected(selection)
        values = b"".join(value for bank in pcrs.values() for value in bank.values())
        attest = Attest(
            qualified_signer=self._qualified_name(),
            extra_data=extra_data,
            clock_info=ClockInfo(clock=1, reset_count=1, restart_count=0, safe=True),
            firmware_version=1,
            selection={bank: tuple(values) for bank, values in pcrs.items()},
            pcr_digest=hashlib.sha256(values).digest(),
        ).encode()
        return Quote(attest=attest, signature=self._sign(attest), pcrs=pcrs)

    @staticmethod
    def _create(template: PublicArea, seed: str) -> _Object:
        key = _key_of_seed(template, seed)
        return _Object(_public(template, key), key)

    def _called(self, method: str) -> None:
        self.calls.append(method)
        if self.errors:
            raise self.errors.pop(0)

    def _selected(self, selection: Mapping[str, Sequence[int]]) -> dict[str, dict[int, bytes]]:
        indices = [index for chosen in selection.values() for index in chosen]
        if set(selection) - set(BANKS) or not set(indices) <= set(range(PCR_COUNT)):
            raise PcrSelectionUnsupported("no such bank or PCR")
        if not selection or not all(selection.values()):
            raise PcrSelectionUnsupported("no PCRs")
        if set(selection) - set(self.pcrs):
            raise PcrBankNotAllocated("no such bank in this TPM")
        banks = sorted(selection, key=BANKS.__getitem__)
        return {b: {i: self.pcrs[b][i] for i in sorted(set(selection[b]))} for b in banks}

    def _qualified_name(self) -> bytes:
        name = self._attestation.public.name()
        return name[:2] + hashlib.sha256(bytes.fromhex("4000000b") + name).digest()

    def _sign(self, attest: bytes) -> bytes:
        key = self._attestation.private
        if isinstance(key, rsa.RSAPrivateKey):
            value: bytes | EcdsaValue = key.sign(attest, padding.PKCS1v15(), hashes.SHA256())
            return Signature(scheme=TPM_ALG_RSASSA, hash=TPM_ALG_SHA256, value=value).encode()
        r, s = decode_dss_signature(key.sign(attest, ec.ECDSA(hashes.SHA256())))
        value = EcdsaValue(r=pack_uints((r, 32)), s=pack_uints((s, 32)))
        return Signature(scheme=TPM_ALG_ECDSA, hash=TPM_ALG_SHA256, value=value).encode()

    def _seed(self, encrypted: bytes) -> bytes:
        """Recover the seed (Part 1, annexes B.10.3 and C.6.3). Raise ValueError for another key."""
        public, key = self._endorsement.public, self._endorsement.private
        name = HASHES[public.name_alg]
        if isinstance(key, rsa.RSAPrivateKey):
            mgf = padding.MGF1(_CODES[name])
            return key.decrypt(
                encrypted, padding.OAEP(mgf=mgf, algorithm=_CODES[name], label=b"IDENTITY\0")
            )
        reader = Reader(encrypted)
        x, y = reader.tpm2b(48), reader.tpm2b(48)
        reader.finish()
        point = ec.EllipticCurvePublicNumbers(
            int.from_bytes(x, "big"), int.from_bytes(y, "big"), key.curve
        )
        z = key.exchange(ec.ECDH(), point.public_key())
        size = key.key_size // 8
        own_x = key.public_key().public_numbers().x.to_bytes(size, "big")
        return hashlib.new(
            name, b"\0\0\0\1" + z + b"IDENTITY\0" + x.rjust(size, b"\0") + own_x
        ).digest()

    def _open(self, seed: bytes, integrity: bytes, encrypted: bytes) -> bytes:
        """Verify the HMAC, which includes the Name, then decrypt (Part 1, section 24.5)."""
        public, name = self._endorsement.public, self._attestation.public.name()
        algorithm = HASHES[public.name_alg]
        digest_bits = 8 * hashlib.new(algorithm).digest_size
        key = _kdfa(algorithm, seed, b"INTEGRITY", b"", digest_bits)
        if not hmac.compare_digest(hmac.digest(key, encrypted + name, algorithm), integrity):
            raise ValueError("integrity")
        assert public.parameters.symmetric is not None
        key = _kdfa(algorithm, seed, b"STORAGE", name, public.parameters.symmetric.key_bits)
        decryptor = Cipher(AES(key), CFB(bytes(16))).decryptor()
        return _whole(decryptor.update(encrypted) + decryptor.finalize())


def _whole(tpm2b: bytes) -> bytes:
    """Return the content of a TPM2B without trailing bytes."""
    reader = Reader(tpm2b)
    content = reader.tpm2b(len(tpm2b))
    reader.finish()
    return content


def _read_blob(credential_blob: bytes) -> tuple[bytes, bytes]:
    reader = Reader(content := _whole(credential_blob))
    integrity = reader.tpm2b(64)
    return integrity, content[reader.position :]


def _kdfa(algorithm: str, key: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    """Derive a key of at most one digest (Part 1, section 11.4.10.2)."""
    data = b"\0\0\0\1" + label + b"\0" + context + bits.to_bytes(4, "big")
    return hmac.digest(key, data, algorithm)[: bits // 8]
