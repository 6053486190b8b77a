"""What a bug report contains of an object: listed fields, with values of the expected form."""

import json
from collections.abc import Mapping, Sequence

import pytest

from signer.operator_cli.collection import allowed_fields
from signer.operator_cli.collection.allowed_fields import Fields, select

KINDS = {
    name: fields
    for name, fields in vars(allowed_fields).items()
    if name.isupper() and isinstance(fields, Mapping)
}
DIGEST = "5f" * 32
SECRETS = {
    "digest": DIGEST,
    "digest in a name": f"node-{DIGEST}",
    "digest in a reason": f"A{DIGEST.upper()}"[:64],
    "text": "the secret is s3cr3t",
    "PEM": "-----BEGIN PRIVATE KEY-----\nMHcCAQEE\n-----END PRIVATE KEY-----\n",
    "base64": "c2VjcmV0IHNlY3JldCBzZWNyZXQ=",
    "path": "/etc/node-attestation/platforms/credentials",
    "address": "https://10.0.0.1:6443",
    "two lines": "node-1\nsecret",
}


def filled(fields: Fields, value: object) -> object:
    """Return an object that has this value wherever one is allowed, and in one more field."""
    if isinstance(fields, Mapping):
        return {**{key: filled(each, value) for key, each in fields.items()}, "more": value}
    if isinstance(fields, Sequence):
        return [filled(each, value) for each in fields]
    return value


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("kind", KINDS)
def test_value_of_another_form_is_left_out_of_each_field(kind: str, secret: str) -> None:
    body = filled(KINDS[kind], secret)
    assert secret in str(body) or "\n" in secret
    shown = json.dumps(select(body, KINDS[kind]))
    assert json.dumps(secret)[1:-1] not in shown


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [{"a": "secret"}, ["secret"], None, float("inf")], ids=str)
def test_object_or_list_in_place_of_a_scalar_is_left_out(kind: str, value: object) -> None:
    shown = json.dumps(select(filled(KINDS[kind], value), KINDS[kind]))
    assert "secret" not in shown
    assert "Infinity" not in shown


def test_listed_fields_are_kept_and_no_others() -> None:
    body = {
        "metadata": {"name": "c1.node-1", "annotations": {"a": "node-1"}},
        "spec": {
            "nodeName": "node-1",
            "endorsementKey": DIGEST,
            "notAfter": "2026-11-30T00:00:00Z",
            "lastRefusal": {"reason": "PcrPolicyMismatch", "message": "node-1"},
        },
    }
    assert select(body, allowed_fields.ATTESTED_NODE) == {
        "metadata": {"name": "c1.node-1"},
        "spec": {
            "nodeName": "node-1",
            "notAfter": "2026-11-30T00:00:00Z",
            "lastRefusal": {"reason": "PcrPolicyMismatch"},
        },
    }
