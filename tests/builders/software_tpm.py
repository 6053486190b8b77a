"""A TPM as a verifier sees it: keys of the right form, and signed attestations.

It signs everything that a test requests; a real TPM would refuse most of it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from common.requests.binding import sha256
from common.tpm.attest import Attest, ClockInfo
from common.tpm.constants import (
    BANKS,
    TPM_ALG_ECDSA,
    TPM_ALG_RSAPSS,
    TPM_ALG_RSASSA,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    TPM_ECC_NIST_P256,
    TPM_ECC_NIST_P384,
    ObjectAttributes,
)
from common.tpm.endorsement_templates import TEMPLATES
from common.tpm.pcrs import PcrSelection
from common.tpm.public import EccParameters, EccPoint, PublicArea, RsaParameters, Scheme
from common.tpm.signature import EcdsaValue, Signature

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
Pcrs = Mapping[str, Mapping[int, bytes]]

AK_ATTRIBUTES = ObjectAttributes(0x00050072)
HASHES: dict[int, hashes.SHA256 | hashes.SHA384] = {
    TPM_ALG_SHA256: hashes.SHA256(),
    TPM_ALG_SHA384: hashes.SHA384(),
}
BYTES = {"sha1": 20, "sha256": 32, "sha384": 48, "sha512": 64}


@cache
def rsa_key(bits: int = 2048, number: int = 0) -> rsa.RSAPrivateKey:
    """Return the n-th RSA key of a test run. Generating one is slow."""
    assert number >= 0
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def unique_field(key: PrivateKey) -> bytes | EccPoint:
    """Return a public key as the unique field of a public area."""
    if isinstance(key, rsa.RSAPrivateKey):
        return key.public_key().public_numbers().n.to_bytes(key.key_size // 8, "big")
    numbers, size = key.public_key().public_numbers(), (key.key_size + 7) // 8
    return EccPoint(x=numbers.x.to_bytes(size, "big"), y=numbers.y.to_bytes(size, "big"))


def fresh_key_for(parameters: RsaParameters | EccParameters) -> PrivateKey:
    """Generate a private key for the parameters."""
    if isinstance(parameters, RsaParameters):
        return rsa_key(parameters.key_bits)
    curve = ec.SECP256R1() if parameters.curve == TPM_ECC_NIST_P256 else ec.SECP384R1()
    return ec.generate_private_key(curve)


def ecdsa_parameters(curve: int = TPM_ECC_NIST_P256, digest: int = TPM_ALG_SHA256) -> EccParameters:
    """Return the parameters of an ECDSA signing key."""
    scheme = Scheme(algorithm=TPM_ALG_ECDSA, hash=digest)
    return EccParameters(symmetric=None, scheme=scheme, curve=curve, kdf=None)


def rsa_parameters(
    bits: int = 2048, algorithm: int = TPM_ALG_RSASSA, digest: int = TPM_ALG_SHA256
) -> RsaParameters:
    """Return the parameters of an RSA signing key."""
    scheme = Scheme(algorithm=algorithm, hash=digest)
    return RsaParameters(symmetric=None, scheme=scheme, key_bits=bits, exponent=0)


AK_KINDS: dict[str, RsaParameters | EccParameters] = {
    "ecdsa-p256-sha256": ecdsa_parameters(),
    "ecdsa-p256-sha384": ecdsa_parameters(digest=TPM_ALG_SHA384),
    "ecdsa-p384-sha256": ecdsa_parameters(TPM_ECC_NIST_P384),
    "ecdsa-p384-sha384": ecdsa_parameters(TPM_ECC_NIST_P384, TPM_ALG_SHA384),
    "rsassa-2048-sha256": rsa_parameters(),
    "rsassa-3072-sha384": rsa_parameters(3072, digest=TPM_ALG_SHA384),
    "rsapss-2048-sha256": rsa_parameters(algorithm=TPM_ALG_RSAPSS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmKey:
    """A key with its public area."""

    private: PrivateKey
    public: PublicArea

    @property
    def tpm2b(self) -> bytes:
        """The TPM2B_PUBLIC."""
        return self.public.to_tpm2b()

    def sign(self, data: bytes) -> bytes:
        """Sign with the scheme of the public area, as TPMT_SIGNATURE."""
        scheme = self.public.parameters.scheme
        assert scheme is not None
        digest = HASHES[scheme.hash]
        value: bytes | EcdsaValue
        if isinstance(self.private, rsa.RSAPrivateKey):
            pss = padding.PSS(mgf=padding.MGF1(digest), salt_length=digest.digest_size)
            pad = pss if scheme.algorithm == TPM_ALG_RSAPSS else padding.PKCS1v15()
            value = self.private.sign(data, pad, digest)
        else:
            size = (self.private.key_size + 7) // 8
            r, s = decode_dss_signature(self.private.sign(data, ec.ECDSA(digest)))
            value = EcdsaValue(r=r.to_bytes(size, "big"), s=s.to_bytes(size, "big"))
        return Signature(scheme=scheme.algorithm, hash=scheme.hash, value=value).encode()


def endorsement_key(template: int = 1) -> TpmKey:
    """Generate an endorsement key of the n-th template; 1 is L-2, ECC P-256."""
    public = tuple(TEMPLATES.values())[template]
    private = fresh_key_for(public.parameters)
    return with_key(public, private)


def attestation_key(parameters: RsaParameters | EccParameters | None = None) -> TpmKey:
    """Generate an attestation key of the template; ECDSA on P-256 by default."""
    parameters = ecdsa_parameters() if parameters is None else parameters
    private = fresh_key_for(parameters)
    public = PublicArea(
        name_alg=TPM_ALG_SHA256,
        attributes=AK_ATTRIBUTES,
        auth_policy=b"",
        parameters=parameters,
        unique=b"",
    )
    return with_key(public, private)


def with_key(public: PublicArea, private: PrivateKey) -> TpmKey:
    """Put a key into a public area."""
    filled = PublicArea(
        name_alg=public.name_alg,
        attributes=public.attributes,
        auth_policy=public.auth_policy,
        parameters=public.parameters,
        unique=unique_field(private),
    )
    return TpmKey(private=private, public=filled)


def pcr_values(selection: PcrSelection, seed: bytes = b"pcr") -> dict[str, dict[int, bytes]]:
    """Return PCR values that all differ."""
    return {
        bank: {i: hashlib.new(bank, seed + bytes([i])).digest()[: BYTES[bank]] for i in indices}
        for bank, indices in selection.items()
    }


def pcr_digest(values: Pcrs, digest: int) -> bytes:
    """Return the digest of PCR values in a quote."""
    hashed = hashlib.new("sha256" if digest == TPM_ALG_SHA256 else "sha384")
    for bank in sorted(values, key=lambda name: BANKS[name]):
        for index in sorted(values[bank]):
            hashed.update(values[bank][index])
    return hashed.digest()


def attest(values: Pcrs, extra_data: bytes, digest: int = TPM_ALG_SHA256) -> Attest:
    """Return a quote of these PCR values."""
    return Attest(
        qualified_signer=b"\x00\x0b" + sha256(b"qualified"),
        extra_data=extra_data,
        clock_info=ClockInfo(clock=1234, reset_count=5, restart_count=6, safe=True),
        firmware_version=7,
        selection={bank: tuple(sorted(indices)) for bank, indices in values.items()},
        pcr_digest=pcr_digest(values, digest),
    )
