"""Fixtures of the unit tests."""

from collections.abc import Iterator

import pytest

from tests.builders.signer_command import flags
from tests.fakes import shared_locks

__all__ = ["flags"]

shared_locks.watch_connections()


@pytest.fixture(autouse=True)
def _nothing_shared_is_held() -> Iterator[None]:
    """Fail a test in which a thread waits for a network while it holds what Clusters share."""
    shared_locks.watch_modules()
    yield
    assert shared_locks.found() == []
