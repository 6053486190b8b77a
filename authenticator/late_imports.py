"""Imports of slow modules at their first use: a failure names its cause and the next step.

The package has one C module for each supported Python. After an upgrade of the distribution to a
newer Python it is missing, and with it `cryptography` and the binding to the TPM. The cache is
served without them.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

from authenticator.errors import ProgramIncomplete

_TPM_BINDING: Final = "tpm2_pytss"
"""A workstation of an operator has this program without it."""


@contextlib.contextmanager
def late_imports() -> Iterator[None]:
    """Run import statements. Raises `ProgramIncomplete` when a module cannot be imported."""
    try:
        yield
    except ImportError as error:
        if error.name == _TPM_BINDING:
            raise ProgramIncomplete(
                f"this machine has no {_TPM_BINDING}, which the package for nodes brings: run this"
                " command on a node (docs/node.md, Install)"
            ) from error
        version = ".".join(map(str, sys.version_info[:2]))
        raise ProgramIncomplete(
            f"Python {version} cannot import a module of this program ({error}): install a version"
            " of it that supports this Python, and the libraries of tpm2-tss (docs/node.md,"
            " Install)"
        ) from error
