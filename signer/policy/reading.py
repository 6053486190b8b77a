"""Policies from YAML text (stub)."""

from signer.policy.values import Policies


class PolicyFileInvalid(ValueError):
    """The file holds no policies; `problems` are all of them, one line each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        """Keep every problem, so that one run tells them all."""
        super().__init__("; ".join(problems))
        self.problems = problems


def load_policies(text: str) -> Policies:
    """Read one or several YAML documents.

    Raises:
        PolicyFileInvalid: with every problem at once.

    """
    raise NotImplementedError
