"""Boot states that the image's vendor did not sign, or no longer stands for (Q4).

The policy fixes PCR 7 (Secure Boot) and lets a vendor sign PCR 11 (the image). The attacker is root
on the node: it boots what it wants, extends any PCR, and sends any file of signatures.
"""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.errors import PcrPolicyMismatch, PcrSignatureRevoked, PcrSignaturesMalformed
from signer.kinds.csr import Csr
from signer.policy.load import load_spec
from signer.policy.policy import Policy
from signer.verify.attestation.signed_pcrs import policy_digest
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused, attacks
from tests.builders.boot_signatures import (
    VendorKey,
    measurements,
    pcr_of,
    signature_file,
    signature_of,
)
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import rsa_key

SECURE_BOOT = pcr_of([b"db of the vendor"])
IMAGE, NEXT, ROOTKIT = (
    pcr_of(measurements({"linux": kernel, "cmdline": b"quiet"}))
    for kernel in (b"kernel 1", b"kernel 2", b"rootkit")
)
KEY, OTHER_KEY = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
RSA_KEY, OTHER_RSA_KEY = (rsa_key(number=number) for number in range(2))
SIGNED, SIGNED_BY_RSA = (signature_of(key, {11: IMAGE}) for key in (KEY, RSA_KEY))


def pem(key: VendorKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def digest_of(value: bytes) -> str:
    return policy_digest({"sha256": (11,)}, {"sha256": {11: value}}).hex()


def policy(key: VendorKey = KEY, *, revoked: list[str] | None = None, **changes: object) -> Policy:
    """Return the rules of a fleet of signed images, as its operator writes them."""
    rule = {"keys": [pem(key)], "pcrs": {"sha256": [11]}}
    spec = {
        "pcrs": {
            "selection": {"sha256": [7]},
            "mode": "Enforce",
            "allowed": {"sha256": {"7": [SECURE_BOOT.hex()]}},
            "signedBy": [rule | ({"revoked": revoked} if revoked else {})],
            **changes,
        }
    }
    loaded = load_spec("images", spec)
    assert isinstance(loaded, Policy), loaded.problems
    return loaded


def booted(
    image: bytes = IMAGE, *signatures: object, pcr_7: bytes = SECURE_BOOT, pcr_12: bytes = bytes(32)
) -> Mutation:
    """Boot an image and send signatures."""
    return sending(signature_file(*signatures), {7: pcr_7, 11: image, 12: pcr_12})


def sending(file: bytes | None, values: dict[int, bytes] | None = None) -> Mutation:
    """Send a file of signatures beside the quote."""

    def mutate(scenario: Scenario) -> Csr:
        if values is not None:
            scenario.pcrs = {"sha256": values}
        return scenario.answer_csr(scenario.answer(pcr_signatures=file))

    return mutate


def signed_image(rules: Callable[[], Policy] = policy) -> Callable[[], Scenario]:
    """Boot the vendor's image on a node of this policy."""

    def make() -> Scenario:
        scenario = Scenario(pcr_signatures=signature_file(SIGNED))
        scenario.policy = replace(scenario.policy, pcrs=rules().pcrs)
        scenario.pcrs = {"sha256": {7: SECURE_BOOT, 11: IMAGE, 12: bytes(32)}}
        return scenario

    return make


def signed_with_rsa() -> Scenario:
    """Boot the image of a vendor with an RSA key."""
    scenario = signed_image(lambda: policy(RSA_KEY))()
    scenario.pcr_signatures = signature_file(SIGNED_BY_RSA)
    return scenario


BY_OTHER = signature_of(OTHER_KEY, {11: ROOTKIT})
ATTACKS: list[Attack] = [
    *attacks(
        {
            PcrPolicyMismatch: {
                "no signature": sending(None),
                "a kernel without a signature": booted(ROOTKIT, SIGNED),
                "a kernel that another vendor signed": booted(ROOTKIT, BY_OTHER),
                "another vendor's signature under the vendor's fingerprint": booted(
                    ROOTKIT, {**BY_OTHER, "pkfp": SIGNED["pkfp"]}
                ),
                "the vendor's signature for another digest": booted(
                    ROOTKIT, {**SIGNED, "pol": digest_of(ROOTKIT)}
                ),
                "a signature for another PCR": booted(
                    ROOTKIT, signature_of(KEY, {16: ROOTKIT}, pcrs=[11])
                ),
                "a signature for another bank": sending(
                    json.dumps({"sha384": [SIGNED], "sha256": []}).encode()
                ),
                "a signed image without Secure Boot": booted(
                    IMAGE, SIGNED, pcr_7=pcr_of([b"Secure Boot off"])
                ),
                "a signed image with a command line of root": booted(
                    IMAGE, SIGNED, pcr_12=pcr_of([b"init=/bin/sh"])
                ),
                "too many false signatures before the good one": booted(
                    IMAGE, *[{**BY_OTHER, "pol": SIGNED["pol"]}] * 8, SIGNED
                ),
            },
            PcrSignaturesMalformed: {
                "signatures that are no JSON": sending(b"{"),
                "signatures with a repeated bank": sending(b'{"sha256":[],"sha256":[]}'),
                "signatures that are no list": sending(b'{"sha256":{}}'),
                "a signature that is no object": booted(IMAGE, 7),
                "a signature that is no base64": booted(IMAGE, {**SIGNED, "sig": "?"}),
            },
        },
        scenario=signed_image(),
    ),
    Attack(
        "another RSA key's signature under the vendor's fingerprint",
        PcrPolicyMismatch,
        booted(
            ROOTKIT,
            signature_of(OTHER_RSA_KEY, {11: ROOTKIT}, pkfp=SIGNED_BY_RSA["pkfp"]),
        ),
        signed_with_rsa,
    ),
    Attack(
        "an image whose signature is revoked",
        PcrSignatureRevoked,
        booted(NEXT, SIGNED, signature_of(KEY, {11: NEXT})),
        signed_image(lambda: policy(revoked=[digest_of(NEXT)])),
    ),
]


@pytest.mark.parametrize("scenario", [signed_image(), signed_with_rsa])
def test_the_good_case_is_issued(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)


@pytest.mark.parametrize(
    ("image", "signatures"),
    [
        (IMAGE, [SIGNED]),
        (NEXT, [SIGNED, signature_of(KEY, {11: NEXT})]),
        (IMAGE, [BY_OTHER, {"pcrs": [11], "new": 1}, SIGNED]),
    ],
    ids=["the image", "the next image", "among signatures of others"],
)
def test_each_image_that_the_vendor_signs_is_accepted(
    image: bytes, signatures: list[object]
) -> None:
    """An update of the image needs no change of the policy."""

    def make() -> Scenario:
        scenario = signed_image()()
        scenario.pcrs = {"sha256": {7: SECURE_BOOT, 11: image, 12: bytes(32)}}
        scenario.pcr_signatures = signature_file(*signatures)
        return scenario

    assert_issued(make)
