"""Builds the one thing that setuptools has no word for: a launcher without the cost of `site`.

`kubelet-authenticator-tpm` is run for each credential, so it is made at build time from
authenticator/launcher.py: compiled, with a `#!` line that starts the interpreter with -I -S.
Installers would drop these flags from a `#!python` line, so the line is written out here and names
the base interpreter of the build: node packages are built where, or for what, they are installed
on. An interpreter of another version runs the full program instead, which installers start right.
"""

import marshal
import sys
from pathlib import Path
from typing import Final

from setuptools import setup  # before distutils, which it brings

from distutils.command.build_scripts import build_scripts  # isort: skip

SOURCE: Final = Path("authenticator", "launcher.py")
NAME: Final = "kubelet-authenticator-tpm"
MARSHAL_VERSION: Final = 2
"""The last without references, which differ from build to build."""

TEMPLATE: Final = """\
#!{python} -IS
# Compiled from authenticator/launcher.py by setup.py; do not edit.
import sys
if sys.hexversion >> 16 == {version}:
    import marshal
    exec(marshal.loads({code!r}))
import os
full = os.path.realpath(sys.argv[0]) + "-full"
os.execv(full, [full, *sys.argv[1:]])
"""


class BuildLauncher(build_scripts):
    """Writes the launcher."""

    def run(self) -> None:
        """Compile the source into a script of its own."""
        python = getattr(sys, "_base_executable", sys.executable)
        source = SOURCE.read_text(encoding="utf-8")
        code = compile(source, SOURCE.name, "exec", dont_inherit=True, optimize=2)
        text = TEMPLATE.format(
            python=python,
            version=sys.hexversion >> 16,
            code=marshal.dumps(code, MARSHAL_VERSION),
        )
        script = Path(self.build_dir, NAME)
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)


setup(scripts=[str(SOURCE)], cmdclass={"build_scripts": BuildLauncher})
