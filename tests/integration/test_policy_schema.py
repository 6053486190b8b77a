"""The schema of KubeletAttestationPolicies and the reader accept the same policies."""

import pytest

from signer.policy.load import load_spec
from signer.policy.policy import Policy, RefusedPolicy
from tests.builders.policy_specs import BAD_SPECS, EVERY_SETTING, GOOD_SPECS
from tests.harness.client import ApiError, Object
from tests.harness.fleet import Fleet

POLICIES = "/apis/attestation.cluster.x-k8s.io/v1alpha1/kubeletattestationpolicies"
UNKNOWN = [name for name, (_, problem) in BAD_SPECS.items() if problem.endswith(": unknown key")]
"""The API server cannot refuse these: it stores them, and the reader refuses them."""
DROPPED = "section is empty"
"""The API server drops a null before it stores the object."""


def dry_run(fleet: Fleet, spec: object, name: str = "policy") -> Object:
    body = {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "KubeletAttestationPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }
    return fleet.management.admin.create(f"{POLICIES}?dryRun=All", body)


@pytest.mark.parametrize("name", GOOD_SPECS)
def test_valid_policy_is_stored_whole_and_read(fleet: Fleet, name: str) -> None:
    spec = GOOD_SPECS[name]
    stored = dry_run(fleet, spec)["spec"]
    assert stored == spec
    assert isinstance(load_spec("policy", stored), Policy)


@pytest.mark.parametrize("name", [n for n in BAD_SPECS if n not in {*UNKNOWN, DROPPED}])
def test_invalid_policy_is_refused_by_the_schema(fleet: Fleet, name: str) -> None:
    spec, problem = BAD_SPECS[name]
    with pytest.raises(ApiError) as caught:
        dry_run(fleet, spec)
    assert caught.value.code == 422
    assert problem.partition(":")[0].split(".")[1] in str(caught.value)


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_key_is_stored_for_the_reader_to_refuse(fleet: Fleet, name: str) -> None:
    """If the API server dropped it, a misspelt rule would silently not be in force."""
    spec, problem = BAD_SPECS[name]
    try:
        stored = dry_run(fleet, spec)["spec"]
    except ApiError as error:
        # A rule of the schema, such as the one on the keys of `allowed`, sees some of them.
        assert error.code == 422  # noqa: PT017 - both outcomes are right
        return
    refused = load_spec("policy", stored)
    assert isinstance(refused, RefusedPolicy)
    assert refused.problems == (problem,)


def test_every_setting_of_the_reader_is_in_the_schema(fleet: Fleet) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    name = "kubeletattestationpolicies.attestation.cluster.x-k8s.io"
    [version] = fleet.management.admin.get(f"{path}/{name}")["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(schema["properties"]) == {*EVERY_SETTING, "clusterRef"}
    missing = [path for path in _settings(EVERY_SETTING, schema) if path]
    assert not missing


def _settings(value: object, schema: Object, path: str = "spec") -> list[str]:
    """Return the paths of settings that the schema does not declare."""
    if isinstance(value, list):
        return [p for item in value for p in _settings(item, schema["items"], path)]
    if not isinstance(value, dict) or "additionalProperties" in schema:
        return []
    return [
        p
        for key, inner in value.items()
        for p in (
            _settings(inner, schema["properties"][key], f"{path}.{key}")
            if key in schema["properties"]
            else [f"{path}.{key}"]
        )
    ]
