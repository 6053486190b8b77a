"""What the signer logs of its verdicts; a line comes after that which it tells of."""

from typing import Any

from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer


def logged(signer: Signer, node: Node, outcome: str) -> list[dict[str, Any]]:
    """Wait for verdicts on a node with this outcome, and return all that are there."""

    def lines() -> list[dict[str, Any]]:
        wanted = (node.name, outcome)
        return [line for line in signer.lines if (line.get("node"), line.get("outcome")) == wanted]

    wait_until(lambda: bool(lines()), what=f"{node.name} {outcome} is in the log")
    return lines()
