"""Virtual machines whose platform certifies the attestation key, as Azure does."""

import struct
from datetime import datetime, timedelta
from functools import cache

from cryptography import x509

from common.evidence import Statement
from common.public_keys import PublicKey
from common.tpm.constants import TPM_ST_ATTEST_CREATION
from common.tpm.reader import tpm2b
from signer.policy.load import load_spec
from signer.policy.policy import Policy
from tests.builders.boot_signatures import pcr_of
from tests.builders.certificates import NOW, Issuer, leaf, usage
from tests.builders.software_tpm import TpmKey

VM_ID = "390cbcf5-6c67-4d9b-98ef-c3f1699cc8fc"
X64 = b'{"MachineArchitecture": "X64"}'
SEPARATOR = bytes(4)
AK_PURPOSE = x509.ObjectIdentifier("2.23.133.8.3")


def policy(**pcrs: object) -> Policy:
    """Return the rules as an operator writes them."""
    spec = {"attestationKey": {"certificateAuthorities": ["/authorities"]}}
    loaded = load_spec("azure", spec | ({"pcrs": pcrs} if pcrs else {}))
    assert isinstance(loaded, Policy), loaded.problems
    return loaded


def creation_of(
    created: TpmKey, by: TpmKey, *, kind: int = TPM_ST_ATTEST_CREATION, magic: int = 0xFF544347
) -> Statement:
    """Return the statement of an attestation key that its TPM created a key."""
    attest = (
        struct.pack(">IH", magic, kind)
        + tpm2b(b"\0\x0b" + bytes(32))
        + tpm2b(b"")
        + struct.pack(">QIIBQ", 1, 1, 0, 1, 7)
        + tpm2b(created.public.name())
        + tpm2b(bytes(32))
    )
    return Statement(attest=attest, signature=by.sign(attest))


def uuid_event(vm_id: str = VM_ID) -> bytes:
    """Return what firmware measures first into PCR 6."""
    return f"UUID: {vm_id.upper()}".encode()


@cache
def pcr_6(*events: bytes) -> bytes:
    """Return PCR 6 after these events, by default those of older firmware."""
    return pcr_of([*events] or [uuid_event(), SEPARATOR])


def ak_extensions(
    *usages: str, purposes: tuple[x509.ObjectIdentifier, ...] = (AK_PURPOSE,), ca: bool = False
) -> dict[x509.ExtensionType, bool]:
    """Return the extensions of a certificate for an attestation key."""
    extensions: dict[x509.ExtensionType, bool] = {
        x509.BasicConstraints(ca=ca, path_length=None): True,
        usage(*(usages or ("digital_signature",))): True,
    }
    if purposes:
        extensions[x509.ExtendedKeyUsage(purposes)] = False
    return extensions


def ak_certificate(
    issuer: Issuer,
    key: PublicKey,
    *,
    extensions: dict[x509.ExtensionType, bool] | None = None,
    begins: datetime = NOW - timedelta(days=30),
    ends: datetime = NOW + timedelta(days=335),
) -> bytes:
    """Make the certificate of an attestation key, DER."""
    return leaf(issuer, key, extensions=extensions or ak_extensions(), begins=begins, ends=ends)
