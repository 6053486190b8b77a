"""`learn`: prints a policy that allows the PCR values of nodes known to be good.

It writes nothing to the cluster: an operator reads the result, and then applies it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import quote

import yaml

from signer.inventory.policy_object import POLICIES
from signer.operator_cli.errors import EXIT_OK, InputInvalid, Rejected
from signer.operator_cli.session import Session
from signer.policy.extend import extend_spec
from signer.policy.learn import LearnError, draft_policy, learn_spec

_KEPT: Final = ("name", "resourceVersion")
"""Metadata of the result: with the version, `kubectl replace` refuses to undo another change."""


def run(session: Session) -> int:
    """Print the draft of a policy, or an existing policy with the learned values."""
    arguments = session.arguments
    options: dict[str, Any] = {"nodes": arguments.node, "cluster": arguments.cluster}
    try:
        with _open_log(arguments.log, session.stdin) as log:
            if arguments.add_to is None:
                session.stdout.write(draft_policy(log, **options))
                return EXIT_OK
            learned = learn_spec(log, **options)
        policy = _read_policy(session, arguments.add_to)
        spec = extend_spec(arguments.add_to, policy["spec"], learned)
    except LearnError as e:
        raise Rejected("\n".join(e.problems)) from e
    metadata = {name: policy["metadata"][name] for name in _KEPT}
    document = {**policy, "metadata": metadata, "spec": spec}
    document.pop("status", None)
    session.stdout.write(yaml.safe_dump(document, sort_keys=False, width=100))
    return EXIT_OK


def _read_policy(session: Session, name: str) -> dict[str, Any]:
    response = session.api.find(f"{POLICIES}/{quote(name, safe='')}")
    if response is None:
        raise Rejected(
            f"KubeletAttestationPolicy {name} does not exist",
            hint="run the command `policy check` for the names of policies",
        )
    policy: dict[str, Any] = json.loads(response.content)
    return policy


@contextmanager
def _open_log(name: str, stdin: TextIO) -> Iterator[TextIO]:
    if name == "-":
        yield stdin
        return
    try:
        with Path(name).open(encoding="utf-8", errors="replace") as file:
            yield file
    except OSError as e:
        raise InputInvalid(f"{name}: {e.strerror}") from e
