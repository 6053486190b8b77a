"""MakeCredential, checked with an ActivateCredential of the tests.

That ActivateCredential is checked with credentials that tpm2-tools made, and key derivation with
values that openssl computed. So a mistake in MakeCredential is not repeated in its test.
"""

import hashlib
import hmac
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.serialization import load_der_private_key

from common.public_keys import InvalidKey
from common.tpm.constants import (
    HASHES,
    TPM_ALG_SHA1,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    TPM_ALG_SHA512,
)
from common.tpm.public import EccParameters, PublicArea, RsaParameters, Symmetric
from signer.issue.make_credential import kdf_a, kdf_e, make_credential
from tests import vectors

CASES = vectors.cases("credentials")
BY_NAME = {case["name"]: case for case in CASES}
KDF_CASES = vectors.cases("kdf")
ALGORITHMS = {name: algorithm for algorithm, name in HASHES.items()}
SECRET = bytes(range(100, 132))
OBJECT_NAME = bytes.fromhex("000b" + "d4" * 32)


def ek_of(case: dict[str, Any]) -> PublicArea:
    return PublicArea.from_tpm2b(bytes.fromhex(case["ek_public"]))


def counted(size: int) -> bytes:
    """Return predictable bytes."""
    return bytes(index % 251 + 1 for index in range(size))


def buffers(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = 2 + int.from_bytes(data[:2], "big")
        found.append(data[2:size])
        data = data[size:]
    return found


def derive(digest: str, seed: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    """KDFa for at most one digest."""
    message = b"\0\0\0\1" + label + b"\0" + context + bits.to_bytes(4, "big")
    return hmac.digest(seed, message, digest)[: bits // 8]


def seed_of(private: object, digest: str, encrypted_secret: bytes) -> bytes:
    """Decrypt or agree on the seed as the TPM does."""
    (inner,) = buffers(encrypted_secret)
    if isinstance(private, rsa.RSAPrivateKey):
        algorithm = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384()}[digest]
        oaep = padding.OAEP(padding.MGF1(algorithm), algorithm, b"IDENTITY\0")
        return private.decrypt(inner, oaep)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    x, y = buffers(inner)
    size = (private.curve.key_size + 7) // 8
    assert (len(x), len(y)) == (size, size)
    point = ec.EllipticCurvePublicKey.from_encoded_point(private.curve, b"\4" + x + y)
    z = private.exchange(ec.ECDH(), point)
    own = private.public_key().public_numbers().x.to_bytes(size, "big")
    return hashlib.new(digest, b"\0\0\0\1" + z + b"IDENTITY\0" + x + own).digest()


def activate(case: dict[str, Any], name: bytes, blob: bytes, encrypted_secret: bytes) -> bytes:
    """Return what TPM2_ActivateCredential returns for the object with this Name."""
    ek = ek_of(case)
    assert ek.parameters.symmetric is not None
    digest = HASHES[ek.name_alg]
    private = load_der_private_key(bytes.fromhex(case["private_key"]), None)
    seed = seed_of(private, digest, encrypted_secret)
    (id_object,) = buffers(blob)
    size = hashlib.new(digest).digest_size
    integrity, encrypted = id_object[2 : 2 + size], id_object[2 + size :]
    assert id_object[:2] == size.to_bytes(2, "big")
    key = derive(digest, seed, b"INTEGRITY", b"", size * 8)
    assert hmac.digest(key, encrypted + name, digest) == integrity, "not for this TPM and Name"
    storage = derive(digest, seed, b"STORAGE", name, ek.parameters.symmetric.key_bits)
    cipher = Cipher(AES(storage), CFB(bytes(16))).decryptor()
    (secret,) = buffers(cipher.update(encrypted) + cipher.finalize())
    return secret


@pytest.mark.parametrize("case", CASES, ids=BY_NAME)
def test_credentials_of_tpm2_tools_are_activated(case: dict[str, Any]) -> None:
    name = bytes.fromhex(case["object_name"])
    blob, encrypted = (bytes.fromhex(case[k]) for k in ("credential_blob", "encrypted_secret"))
    assert activate(case, name, blob, encrypted).hex() == case["secret"]


@pytest.mark.parametrize("case", CASES, ids=BY_NAME)
def test_a_credential_is_activated_with_its_key_and_name(case: dict[str, Any]) -> None:
    ek = ek_of(case)
    blob, encrypted = make_credential(ek, OBJECT_NAME, SECRET, random=counted)
    assert activate(case, OBJECT_NAME, blob, encrypted) == SECRET
    # The sizes are those that tpm2-tools makes.
    assert len(blob) == len(bytes.fromhex(case["credential_blob"]))
    assert len(encrypted) == len(bytes.fromhex(case["encrypted_secret"]))


@pytest.mark.parametrize("name", ["rsa-2048-sha256-aes128", "p256-sha256-aes128"])
def test_the_encryption_depends_on_the_randomness(name: str) -> None:
    ek = ek_of(BY_NAME[name])
    one, _ = make_credential(ek, OBJECT_NAME, SECRET, random=counted)
    same, _ = make_credential(ek, OBJECT_NAME, SECRET, random=counted)
    other, _ = make_credential(ek, OBJECT_NAME, SECRET, random=lambda size: b"\7" * size)
    assert one == same != other


@pytest.mark.parametrize("constant", [b"\0", b"\xff"])
def test_every_random_value_gives_an_ephemeral_key(constant: bytes) -> None:
    case = BY_NAME["p384-sha384-aes256"]
    ek = ek_of(case)
    wrapped = make_credential(ek, OBJECT_NAME, SECRET, random=lambda size: constant * size)
    assert activate(case, OBJECT_NAME, *wrapped) == SECRET


@pytest.mark.parametrize("name", ["p256-sha256-aes128", "p384-sha384-aes256"])
def test_ephemeral_scalars_are_unbiased(name: str) -> None:
    """64 more bits than the order has are used, and the scalar is never 0 or the order."""
    case = BY_NAME[name]
    ek = ek_of(case)
    curve = ec.SECP256R1() if name.startswith("p256") else ec.SECP384R1()
    sizes: list[int] = []

    def least(size: int) -> bytes:
        sizes.append(size)
        return (curve.group_order - 1).to_bytes(size, "big")

    wrapped = make_credential(ek, OBJECT_NAME, SECRET, random=least)
    assert sizes == [curve.key_size // 8 + 8]
    base = ec.derive_private_key(1, curve).public_key().public_numbers()
    assert buffers(buffers(wrapped[1])[0])[0] == base.x.to_bytes(curve.key_size // 8, "big")
    assert activate(case, OBJECT_NAME, *wrapped) == SECRET


def test_coordinates_are_padded_to_the_field() -> None:
    """One of 256 points has a short X; without padding the TPM would derive another seed."""
    case = BY_NAME["p256-sha256-aes128"]
    ek = ek_of(case)
    for private in range(2, 5000):
        public = ec.derive_private_key(private, ec.SECP256R1()).public_key()
        if public.public_numbers().x < 1 << 248:
            break
    else:
        pytest.fail("no point with a short coordinate")
    ephemeral = private - 1
    wrapped = make_credential(
        ek, OBJECT_NAME, SECRET, random=lambda size: ephemeral.to_bytes(size, "big")
    )
    assert wrapped[1][4:5] == b"\0"
    assert activate(case, OBJECT_NAME, *wrapped) == SECRET


@pytest.mark.parametrize(
    "case",
    [c for c in KDF_CASES if c["kdf"] == "a"],
    ids=lambda c: f"{c['digest']}-{c['label']}-{c['bits']}",
)
def test_kdf_a_derives_what_openssl_derives(case: dict[str, Any]) -> None:
    key, context = bytes.fromhex(case["key"]), bytes.fromhex(case["context"])
    label = case["label"].encode() + b"\0"
    half = len(context) // 2
    derived = kdf_a(
        ALGORITHMS[case["digest"]], key, label, context[:half], context[half:], case["bits"]
    )
    assert derived.hex() == case["result"]


@pytest.mark.parametrize(
    "case", [c for c in KDF_CASES if c["kdf"] == "e"], ids=lambda c: str(c["digest"])
)
def test_kdf_e_derives_what_openssl_derives(case: dict[str, Any]) -> None:
    z, party_u, party_v = (bytes.fromhex(case[k]) for k in ("key", "party_u", "party_v"))
    label = case["label"].encode() + b"\0"
    derived = kdf_e(ALGORITHMS[case["digest"]], z, label, party_u, party_v, case["bits"])
    assert derived.hex() == case["result"]
    assert kdf_e(ALGORITHMS[case["digest"]], z, label, party_u, party_v, 128) == derived[:16]


RSA = ek_of(BY_NAME["rsa-2048-sha256-aes128"])
ECC = ek_of(BY_NAME["p256-sha256-aes128"])


def with_symmetric(ek: PublicArea, symmetric: Symmetric | None) -> PublicArea:
    """Change the symmetric algorithm of the key."""
    parameters: RsaParameters | EccParameters = replace(ek.parameters, symmetric=symmetric)
    return replace(ek, parameters=parameters)


@pytest.mark.parametrize("ek", [RSA, ECC], ids=["RSA", "ECC"])
@pytest.mark.parametrize(
    ("symmetric", "message"),
    [
        (None, "AES in CFB"),
        (Symmetric(algorithm=0x0013, key_bits=128, mode=0x0043), "AES in CFB"),
        (Symmetric(algorithm=0x0006, key_bits=128, mode=0x0042), "AES in CFB"),
        (Symmetric(algorithm=0x0006, key_bits=192, mode=0x0043), "128"),
    ],
    ids=["null", "SM4", "CBC", "192 bits"],
)
def test_keys_with_another_symmetric_algorithm_are_refused(
    ek: PublicArea, symmetric: Symmetric | None, message: str
) -> None:
    with pytest.raises(InvalidKey, match=message):
        make_credential(with_symmetric(ek, symmetric), OBJECT_NAME, SECRET, random=counted)


def test_sha1_is_refused() -> None:
    with pytest.raises(InvalidKey, match="nameAlg"):
        make_credential(
            replace(RSA, name_alg=TPM_ALG_SHA1), OBJECT_NAME, SECRET[:20], random=counted
        )


@pytest.mark.parametrize(
    ("name_alg", "size"), [(TPM_ALG_SHA256, 32), (TPM_ALG_SHA384, 48), (TPM_ALG_SHA512, 64)]
)
def test_secret_over_the_digest_size_is_refused(name_alg: int, size: int) -> None:
    ek = replace(RSA, name_alg=name_alg)
    blob, _ = make_credential(ek, OBJECT_NAME, bytes(size), random=counted)
    assert len(blob) == 2 + 2 + size + 2 + size
    with pytest.raises(InvalidKey, match="nameAlg"):
        make_credential(ek, OBJECT_NAME, bytes(size + 1), random=counted)


def test_invalid_key_is_refused() -> None:
    with pytest.raises(InvalidKey, match="RSA modulus must have"):
        make_credential(replace(RSA, unique=b"\1"), OBJECT_NAME, SECRET, random=counted)
