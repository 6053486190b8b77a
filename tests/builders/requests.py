"""Parts of PKCS#10 requests."""

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_der_private_key

from tests import vectors

LONGEST = b".".join([b"a" * 62] * 4) + b"aa"


def rsa_key() -> rsa.RSAPrivateKey:
    """Return an RSA 2048 key from the vectors, since generating one is slow."""
    data = bytes.fromhex(vectors.cases("credentials")[0]["private_key"])
    key = load_der_private_key(data, None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


RSA_KEY = rsa_key()
