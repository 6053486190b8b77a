"""A TPM as Azure makes it: a certified attestation key, and a PCR 6 that names the machine."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from common.public_keys import PublicKey
from tests.builders.certificates import Issuer
from tests.builders.virtual_machines import SEPARATOR, ak_certificate, uuid_event
from tests.harness.tpm import SoftwareTpm

_KEY, _CERTIFICATE = "0x81000003", 0x01C101D0
_ATTRIBUTES = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|restricted|sign"
_INDEX_SIZE = 1800
"""Bytes of the NV index: the certificate is padded, and one command cannot read all of them."""


def make_virtual_machine(  # noqa: PLR0913 - each by name
    tpm: SoftwareTpm,
    authority: Issuer,
    vm_id: str,
    *,
    more_events: Sequence[bytes] = (),
    has_policy: bool = False,
    certified: PublicKey | None = None,
) -> None:
    """Certify an attestation key in the TPM, and boot the virtual machine.

    `more_events` is what newer firmware measures after the UUID, `certified` another key than the
    one in the TPM. With `has_policy` the key has an authorization policy, as older ones.
    """
    unique, policy = tpm.directory / "unique", tpm.directory / "policy"
    # tpm2_createprimary reads the size in the order of the processor.
    unique.write_bytes((256).to_bytes(2, "little") + bytes(256))
    policy.write_bytes(b"\x5a" * 32)
    tpm.run(
        "createprimary",
        *("-C", "endorsement", "-G", "rsa2048:rsassa-sha256:null", "-a", _ATTRIBUTES),
        *("-u", unique, "-c", "ak.ctx", *(("-L", policy) if has_policy else ())),
    )
    tpm.run("evictcontrol", "-C", "owner", "-c", "ak.ctx", _KEY)
    tpm.run("readpublic", "-c", _KEY, "-f", "pem", "-o", "ak.pem")
    key = load_pem_public_key((tpm.directory / "ak.pem").read_bytes())
    assert isinstance(key, RSAPublicKey)
    now, day = datetime.now(UTC), timedelta(days=1)
    der = ak_certificate(authority, certified or key, begins=now - day, ends=now + day)
    tpm.write_nv(_CERTIFICATE, der.ljust(_INDEX_SIZE, b"\0"))
    tpm.boot([(6, event) for event in (uuid_event(vm_id), *more_events, SEPARATOR)])
