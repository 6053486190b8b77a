"""Paths of the installed programs under test: scripts of the interpreter of the tests."""

import sysconfig
from pathlib import Path

SCRIPTS = Path(sysconfig.get_path("scripts"))
PLUGIN = SCRIPTS / "kubelet-authenticator-tpm"
SIGNER = SCRIPTS / "node-attestation-signer"
OPERATOR = SCRIPTS / "kubectl-attestation"
