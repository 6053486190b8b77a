"""Names of AttestedNode objects: the rule of docs/protocol.md section 2."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.kinds.attested_node import attested_node_name
from signer.kinds.cluster import ClusterKey

LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
SUBDOMAIN = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
LONG = st.sampled_from(["a" * 189, "a" * 190, "a" * 252, "a" * 253])
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def name_of(cluster: str, node: str) -> str:
    """Name the AttestedNode of a node."""
    return attested_node_name(ClusterKey(namespace="tenants", name=cluster), node)


def digest(cluster: str, node: str) -> str:
    """Compute the digest as docs/protocol.md has it: each name with its length before it."""
    names = [cluster.encode(), node.encode()]
    fields = b"".join(len(name).to_bytes(4, "big") + name for name in names)
    return hashlib.sha256(fields).hexdigest()


def test_name_is_node_and_cluster_joined_by_a_dot() -> None:
    assert name_of("blue", "node-1.example") == "node-1.example.blue"


@pytest.mark.parametrize(
    ("cluster", "node"),
    [
        ("blue.green", "node-1"),
        ("blue", "n" * 249),
        ("Blue", "node-1"),
        ("blue", "-node"),
        ("", "node-1"),
    ],
    ids=["dot in the Cluster's name", "254 characters", "upper case", "no object name", "empty"],
)
def test_name_is_a_digest_where_the_joined_one_is_ambiguous_or_invalid(
    cluster: str, node: str
) -> None:
    assert name_of(cluster, node) == digest(cluster, node)


def test_joined_name_may_have_253_characters() -> None:
    assert name_of("blue", "n" * 248) == "n" * 248 + ".blue"


@given(
    one=st.tuples(SUBDOMAIN, SUBDOMAIN | LONG),
    move=st.integers(min_value=0, max_value=3),
)
def test_two_nodes_never_share_a_name(one: tuple[str, str], move: int) -> None:
    """Move labels between node and Cluster: the joined text stays, the name does not."""
    labels = f"{one[1]}.{one[0]}".split(".")
    split = max(1, min(len(labels) - 1, move))
    other = ".".join(labels[split:]), ".".join(labels[:split])
    assert (name_of(*one) == name_of(*other)) == (one == other)


@given(cluster=SUBDOMAIN, node=SUBDOMAIN | LONG)
def test_name_is_a_valid_object_name(cluster: str, node: str) -> None:
    name = name_of(cluster, node)
    assert len(name) <= 253
    assert OBJECT_NAME.fullmatch(name)
    joined = "." in name
    assert name == (f"{node}.{cluster}" if joined else digest(cluster, node))
