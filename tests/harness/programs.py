"""Where the installed programs under test are: those of the interpreter that runs the tests."""

import sysconfig
from pathlib import Path

SCRIPTS = Path(sysconfig.get_path("scripts"))
PLUGIN = SCRIPTS / "kubelet-authenticator-tpm"
SIGNER = SCRIPTS / "node-attestation-signer"
