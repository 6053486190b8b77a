"""`learn`: prints a policy that allows the PCR values of nodes known to be good.

It writes nothing to the cluster: an operator reads the result, and then applies it.
"""

from collections.abc import Mapping
from typing import Any, Final

from common.formats.yaml_text import to_yaml
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import read_as
from signer.kinds.policy import POLICIES
from signer.operator_cli.errors import EXIT_OK, InputInvalid, Rejected
from signer.operator_cli.session import Session
from signer.policy.changes.extend import extend_spec
from signer.policy.changes.learn import LearnError, draft_policy, learn_spec, warn_of_unset_pcrs
from signer.policy.load import load_spec
from signer.policy.policy import describe_clusters
from signer.settings.flags import open_log

_KEPT: Final = ("name", "resourceVersion")
"""Metadata of the result: with the version, `kubectl replace` refuses to undo another change."""


def run(session: Session) -> int:
    """Print the draft of a policy, or an existing policy with the learned values."""
    arguments = session.arguments
    options: dict[str, Any] = {"nodes": arguments.node, "cluster": arguments.cluster}
    try:
        with open_log(arguments.log, session.stdin) as log:
            if arguments.add_to is None:
                session.stdout.write(draft_policy(log, **options))
                return EXIT_OK
            cluster, learned = learn_spec(log, **options)
        policy = _read_policy(session, arguments.add_to)
        spec = extend_spec(arguments.add_to, policy["spec"], learned)
    except LearnError as error:
        raise Rejected("\n".join(error.problems)) from error
    except OSError as error:
        raise InputInvalid(f"{arguments.log}: {error.strerror}") from error
    _warn(session, cluster, spec, learned)
    metadata = {name: policy["metadata"][name] for name in _KEPT}
    document = {**policy, "metadata": metadata, "spec": spec}
    document.pop("status", None)
    session.stdout.write(to_yaml(document))
    return EXIT_OK


def _warn(
    session: Session, cluster: ClusterKey, spec: Mapping[str, Any], learned: Mapping[str, Any]
) -> None:
    """Warn of values that say nothing, and if the values count for other Clusters too."""
    warning = warn_of_unset_pcrs(learned["pcrs"]["allowed"])
    if warning:
        session.warn(warning)
    clusters = load_spec(session.arguments.add_to, spec).clusters
    if clusters is None or clusters.cluster != cluster:
        session.warn(
            f"the nodes are of Cluster {cluster}, and the policy is for"
            f" {describe_clusters(clusters)}: it allows their values there too"
        )


def _read_policy(session: Session, name: str) -> dict[str, Any]:
    response = session.api.find(POLICIES.object_path(name))
    if response is None:
        raise Rejected(
            f"KubeletAttestationPolicy {name} does not exist",
            hint="run the command `policy check` for the names of policies",
        )
    policy: dict[str, Any] = response.read(read_as(dict))
    return policy
