"""The commands need nothing that only Linux has: they also run on an operator's macOS."""

import os
import ssl
import subprocess
import sys

import pytest

from signer.kube.transport.tls import load_chain
from tests.harness import pki

IMPORT_ALL = """
import importlib, os, pkgutil, socket
for module, name in ((socket, "TCP_KEEPIDLE"), (os, "memfd_create"), (os, "MFD_CLOEXEC")):
    delattr(module, name)
import signer.operator_cli as commands
for found in pkgutil.walk_packages(commands.__path__, "signer.operator_cli."):
    importlib.import_module(found.name)
"""


def test_every_module_can_be_imported_without_names_of_linux() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_client_certificate_is_loaded_without_files_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    pair = pki.Authority.make("cluster", pki.ec_key()).client("admin", "system:masters")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    load_chain(context, (pair.certificate + pair.key).decode())
    with pytest.raises(ssl.SSLError):
        load_chain(context, pair.certificate.decode())
