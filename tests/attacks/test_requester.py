"""Requesters, usages, signers and clusters: everything that the API server records about a CSR.

The holder of a stolen bootstrap token can create any CSR, and so can every pod that reads a token
from instance metadata (4ARMED's kubeletmein on GKE and DigitalOcean). The token alone must not be
enough for another signer, wider usages or the name of another node. It must not help in a cluster
that did not opt in, or in which another approver approves (R0 to R3, M5).
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.names import BUILTIN_SERVING_SIGNER, CLIENT_SIGNER
from signer.errors import (
    AlreadyDecided,
    AutoApproveBindingPresent,
    MultipleClientSigners,
    NotOptedIn,
    NotOurSigner,
    RequesterNameMismatch,
    RequesterNotAllowed,
    ServingOnly,
    UsagesNotAllowed,
)
from signer.kinds.csr import Condition, Csr
from signer.policy.policy import AutoApproveBindings, KubeletServingMode, PolicyMode
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused, reconcile_once
from tests.attacks.scenarios import renewal
from tests.builders.kube_objects import INSECURE_CLIENT_SIGNER
from tests.builders.scenario import NODE, Scenario

CLIENT = ("client auth", "digital signature")
SERVING = ("digital signature", "server auth")
BOOTSTRAPPERS = frozenset({"system:bootstrappers"})
NODES = frozenset({"system:nodes", "system:authenticated"})
EVERYBODY = frozenset({"system:authenticated"})


def changed(**changes: Any) -> Mutation:  # noqa: ANN401 - fields of Csr
    """Change fields of the CSRs, with an offer and an answer that are valid for them."""

    def mutate(scenario: Scenario) -> tuple[Csr, Csr]:
        scenario.username = changes.get("username", scenario.username)
        return scenario.offer_csr(**changes), scenario.answer_csr(**changes)

    return mutate


def asked(*usages: str) -> Mutation:
    """Request these usages, to which the quote is also bound."""
    return changed(usages=usages)


def by(username: str, *groups: str) -> Mutation:
    """Request as another user, with the challenge of that user."""
    return changed(username=username, groups=frozenset(groups))


def to(signer_name: str) -> Mutation:
    """Request from another signer."""
    return changed(signer_name=signer_name)


def with_condition(kind: str) -> Mutation:
    """Send a CSR that already has this condition."""
    condition = Condition(type=kind, reason="Whatever", message="")
    return changed(conditions={kind: condition})


def cluster(**changes: Any) -> Mutation:  # noqa: ANN401 - fields of Cluster
    """Use a cluster with other settings."""
    return lambda scenario: scenario.change_cluster(**changes)


def as_node_asking_for(name: str) -> Mutation:
    """Renew as a node, for another name."""

    def mutate(scenario: Scenario) -> None:
        scenario.username = f"system:node:{name}"

    return mutate


def serving_scenario() -> Scenario:
    """Request a serving certificate as a node."""
    scenario = Scenario()
    scenario.for_serving(NODE, "192.0.2.11")
    return scenario


def as_bootstrapper(scenario: Scenario) -> None:
    """Request a serving certificate with a bootstrap token."""
    scenario.username, scenario.groups = "system:bootstrap:abcdef", BOOTSTRAPPERS


def waiting_for_bindings(scenario: Scenario) -> None:
    """Leave a forgotten binding, under a policy that waits until it is removed."""
    policy = replace(scenario.policy, auto_approve_bindings=AutoApproveBindings.WAIT)
    scenario.policy = policy
    scenario.change_cluster(auto_approve_bindings=frozenset({"kubeadm:node-autoapprove-bootstrap"}))


def under_serving_only(scenario: Scenario) -> None:
    """Attest in a Cluster whose policy issues no certificates."""
    scenario.policy = replace(scenario.policy, mode=PolicyMode.SERVING_ONLY)


def of_other_groups(scenario: Scenario) -> None:
    """Join by a group that the policy does not list."""
    scenario.policy = replace(scenario.policy, bootstrap_groups=frozenset({"joiners"}))


OURS = [
    Attack("a cluster that did not opt in", NotOptedIn, cluster(client_signers=frozenset())),
    Attack(
        "a cluster of the insecure signer",
        NotOptedIn,
        cluster(client_signers=frozenset({INSECURE_CLIENT_SIGNER})),
    ),
    Attack(
        "the insecure signer besides",
        MultipleClientSigners,
        cluster(client_signers=frozenset({CLIENT_SIGNER, INSECURE_CLIENT_SIGNER})),
    ),
    Attack(
        "a forgotten auto-approving binding",
        AutoApproveBindingPresent,
        cluster(auto_approve_bindings=frozenset({"kubeadm:node-autoapprove-bootstrap"})),
    ),
    Attack(
        "a forgotten binding for renewals",
        AutoApproveBindingPresent,
        cluster(auto_approve_bindings=frozenset({"kubeadm:node-autoapprove-certificate-rotation"})),
        renewal,
    ),
    Attack(
        "a forgotten binding that is not removed",
        AutoApproveBindingPresent,
        waiting_for_bindings,
    ),
    Attack("an attestation under ServingOnly", ServingOnly, under_serving_only),
    Attack("a renewal under ServingOnly", ServingOnly, under_serving_only, renewal),
    Attack(
        "our serving signer under ServingOnly",
        ServingOnly,
        under_serving_only,
        serving_scenario,
    ),
    Attack("the insecure signer", NotOurSigner, to(INSECURE_CLIENT_SIGNER)),
    Attack(
        "the built-in client signer",
        NotOurSigner,
        to("kubernetes.io/kube-apiserver-client-kubelet"),
    ),
    Attack("the signer for all clients", NotOurSigner, to("kubernetes.io/kube-apiserver-client")),
    Attack("the legacy signer", NotOurSigner, to("kubernetes.io/legacy-unknown")),
    Attack("our signer's name in capitals", NotOurSigner, to(CLIENT_SIGNER.upper())),
    Attack("our signer's name and more", NotOurSigner, to(CLIENT_SIGNER + "-v2")),
    Attack(
        "the proposal's signer without a domain",
        NotOurSigner,
        to(CLIENT_SIGNER.replace("cluster.x-k8s.io", "cluster-x-k8s-io")),
    ),
    Attack("no signer", NotOurSigner, to("")),
    Attack("Denied", AlreadyDecided, with_condition("Denied")),
    Attack("Failed", AlreadyDecided, with_condition("Failed")),
    Attack("with a certificate", AlreadyDecided, changed(certificate=b"-----BEGIN")),
    Attack("with an empty certificate", AlreadyDecided, changed(certificate=b"")),
]
USAGES = [
    Attack(f"usages: {name}", UsagesNotAllowed, asked(*usages))
    for name, usages in {
        "none": (),
        "client auth alone": ("client auth",),
        "digital signature alone": ("digital signature",),
        "key encipherment alone": ("key encipherment",),
        "those of serving": SERVING,
        "server auth besides": (*CLIENT, "server auth"),
        "cert sign besides": (*CLIENT, "cert sign"),
        "crl sign besides": (*CLIENT, "crl sign"),
        "code signing besides": (*CLIENT, "code signing"),
        "any besides": (*CLIENT, "any"),
        "any alone": ("any",),
        "one of them twice": (*CLIENT, "client auth"),
        "key encipherment twice": (*CLIENT, "key encipherment", "key encipherment"),
        "signing instead": ("signing", "client auth"),
        "in capitals": ("Client Auth", "digital signature"),
        "joined by a comma": ("client auth,digital signature",),
        "with a space": ("client auth ", "digital signature"),
        "of no name": (*CLIENT, ""),
    }.items()
] + [
    Attack(f"usages for serving: {name}", UsagesNotAllowed, asked(*usages), serving_scenario)
    for name, usages in {
        "those of clients": CLIENT,
        "client auth besides": (*SERVING, "client auth"),
        "server auth alone": ("server auth",),
    }.items()
]
REQUESTERS = [
    Attack(f"requester: {name}", RequesterNotAllowed, by(username, *groups))
    for name, username, groups in (
        ("a user", "alice", EVERYBODY),
        ("an administrator", "kubernetes-admin", frozenset({"system:masters"})),
        ("an anonymous user", "system:anonymous", frozenset({"system:unauthenticated"})),
        ("a service account", "system:serviceaccount:kube-system:x", EVERYBODY),
        ("a user in the group of nodes", "alice", NODES),
        ("a bootstrap token without its group", "system:bootstrap:abcdef", EVERYBODY),
        ("a look-alike of the group", "system:bootstrap:abcdef", {"system:bootstrappers:kubeadm"}),
        ("the group in capitals", "system:bootstrap:abcdef", {"System:Bootstrappers"}),
        ("a node without its group", f"system:node:{NODE}", EVERYBODY),
        ("a node in the group of bootstrappers", f"system:node:{NODE}", BOOTSTRAPPERS),
        ("a node of no name", "system:node:", NODES),
        ("a node in capitals", f"System:node:{NODE}", NODES),
        ("a node with a space before", f" system:node:{NODE}", NODES),
        ("no name", "", EVERYBODY),
        ("no groups", "system:bootstrap:abcdef", ()),
    )
] + [
    Attack("a group that is not a bootstrapper's any more", RequesterNotAllowed, of_other_groups),
    Attack(
        "a bootstrapper asks for serving",
        RequesterNotAllowed,
        as_bootstrapper,
        serving_scenario,
    ),
]
OTHER_NAMES = [
    Attack(
        f"a node asks for {name}",
        RequesterNameMismatch,
        as_node_asking_for(requester),
        scenario,
    )
    for name, requester, scenario in (
        ("another's name", "node-2.example", renewal),
        ("another's serving certificate", "node-2.example", serving_scenario),
        ("the name that its own begins with", "node-1.example.com", renewal),
        ("the name that begins with its own", "node-1", renewal),
        ("its name with a trailing dot", "node-1.example.", renewal),
        ("its name in capitals", "NODE-1.example", renewal),
        ("its name with the prefix twice", "system:node:node-1.example", renewal),
    )
]
ATTACKS = OURS + USAGES + REQUESTERS + OTHER_NAMES


@pytest.mark.parametrize("scenario", [Scenario, renewal, serving_scenario])
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)


def test_policy_can_ignore_the_built_in_serving_signer() -> None:
    """Requests to our own serving signer still pass."""
    scenario = serving_scenario()
    scenario.change_policy("serving", builtin=KubeletServingMode.IGNORE)
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"
    csr = scenario.answer_csr(signer_name=BUILTIN_SERVING_SIGNER)
    assert reconcile_once(scenario, csr).reason == "NotOurSigner"


@pytest.mark.parametrize("seconds", [2**31 - 1, 10**9])
def test_requested_lifetime_is_limited_by_the_policy(seconds: int) -> None:
    """`expirationSeconds` can only shorten the lifetime."""
    scenario = Scenario(expiration_seconds=seconds)
    csr = scenario.answer_csr(expiration_seconds=seconds)
    traces = reconcile_once(scenario, csr)
    assert traces.outcome == "issued"
    (node,) = scenario.store.nodes.values()
    assert node.not_after <= scenario.now + timedelta(hours=168)
