"""A printed command: a shell reads each word as it was given, and no value as an option."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.printed_command import printed_command

VALUES = st.text().filter(lambda text: not text.startswith("-"))


@given(value=VALUES, option=VALUES)
def test_a_shell_reads_each_word_as_it_was_given(value: str, option: str) -> None:
    command = printed_command("kubectl get", value, n=option, dry_run=True, context=False)
    assert shlex.split(command) == ["kubectl", "get", value, "-n", option, "--dry-run"]


def test_value_that_would_be_an_option_is_refused() -> None:
    """`kubectl delete clusterrolebinding --all` deletes all of them."""
    with pytest.raises(ValueError, match="must not begin with a dash"):
        printed_command("kubectl delete clusterrolebinding", "--all")
    with pytest.raises(ValueError, match="must not begin with a dash"):
        printed_command("kubectl get pods", n="-A")
    assert printed_command("kubectl delete clusterrolebinding --", "--all").endswith(" -- --all")
