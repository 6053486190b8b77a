"""What the signer logs of its verdicts. It writes a line after the verdict itself."""

from typing import Any

from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer


def logged(signer: Signer, node: Node, outcome: str) -> list[dict[str, Any]]:
    """Wait for verdicts on a node with this outcome, and return all of them."""

    def lines() -> list[dict[str, Any]]:
        expected = (node.name, outcome)
        return [
            line for line in signer.lines if (line.get("node"), line.get("outcome")) == expected
        ]

    wait_until(lambda: bool(lines()), what=f"{node.name} {outcome} is in the log")
    return lines()
