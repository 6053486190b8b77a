"""Fixtures of the unit tests."""

from tests.builders.signer_command import flags

__all__ = ["flags"]
