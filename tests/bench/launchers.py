"""The launcher of the node packages, with the module of this checkout."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.harness.programs import PLUGIN

ROOT: Final = Path(__file__).parents[2]
INTERPRETER: Final = Path("/usr/bin/python3")
"""The interpreter that the first line of the launcher names."""

_SCRIPT: Final = ROOT / "packaging/node/package/kubelet-authenticator-tpm"
_MODULES: Final = "/usr/lib/kubelet-authenticator-tpm/lib/authenticator"


def packaged(directory: Path) -> Path:
    """Install the launcher of the node packages and its module into `directory`.

    The full program beside it is that of this virtual environment.
    """
    source = directory / "lib" / "launcher.py"
    source.parent.mkdir(parents=True)
    source.write_bytes((ROOT / "authenticator/launcher.py").read_bytes())
    compiler = (INTERPRETER, "-ISm", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    subprocess.run([*compiler, source.parent], check=True)
    launcher = directory / PLUGIN.name
    text = _SCRIPT.read_text(encoding="utf-8")
    launcher.write_text(text.replace(_MODULES, str(source.parent)), encoding="utf-8")
    launcher.chmod(0o755)
    full = f"{PLUGIN.name}-full"
    launcher.with_name(full).symlink_to(Path(sys.prefix, "bin", full))
    return launcher
