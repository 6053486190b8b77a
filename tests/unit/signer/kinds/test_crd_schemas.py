"""The CRDs accept only what the signer reads."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from signer.kinds.attested_node import attested_node_name, read_attested_node
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import read_endorsement_key
from signer.kinds.key_request import read_key_request
from tests.builders.crd_schema import is_date_time, schema_of, values
from tests.builders.kube_objects import DIGEST, HOME, metadata

READERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "attestednodes": read_attested_node,
    "endorsementkeys": read_endorsement_key,
    "endorsementkeyrequests": read_key_request,
}


SPECS = {plural: values(schema_of(plural)) for plural in READERS}


def named(plural: str, spec: dict[str, Any]) -> str:
    """Return the name that the API server demands."""
    if plural != "attestednodes":
        return DIGEST
    cluster = ClusterKey(namespace=HOME.namespace, name=spec["clusterName"])
    return attested_node_name(cluster, spec["nodeName"])


@pytest.mark.parametrize("plural", READERS)
@given(data=st.data())
def test_what_the_crd_accepts_can_be_read(plural: str, data: st.DataObject) -> None:
    """`notAfter: 0000-01-01T00:00:00Z` kept the next owner of the hardware out."""
    spec = data.draw(SPECS[plural])
    body = {"metadata": metadata(named(plural, spec), resourceVersion="1"), "spec": spec}
    READERS[plural](body)


def is_unreadable(body: dict[str, Any]) -> bool:
    try:
        read_attested_node(body)
    except ValueError:
        return True
    return False


def test_generator_finds_times_that_no_program_reads() -> None:
    """Else the property would prove nothing."""
    for text in ("0000-01-01T00:00:00Z", "2026-01-02t03:04:05,5+99:99", "2026-01-02T03:04:05ZT"):
        assert is_date_time(text)
    for text in ("2026-02-29T00:00:00Z", "2026-01-02 03:04:05Z", "2026-01-02T24:00:00Z"):
        assert not is_date_time(text)
    schema = schema_of("attestednodes")
    del schema["properties"]["notAfter"]["pattern"]
    meta = metadata("node-1.blue", resourceVersion="1")
    find(
        values(schema["properties"]["notAfter"]),
        lambda text: is_unreadable({"metadata": meta, "spec": {**SPEC, "notAfter": text}}),
    )
    assert not is_unreadable({"metadata": meta, "spec": SPEC})


SPEC = {
    "clusterName": HOME.name,
    "nodeName": "node-1",
    "providerID": "test://1",
    "endorsementKey": DIGEST,
    "notAfter": "2026-01-09T03:04:05Z",
    "lastAttested": "2026-01-02T03:04:05Z",
}
