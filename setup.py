"""Builds the launcher, which setuptools has no word for: a script that starts without `site`.

`kubelet-authenticator-tpm` runs for each credential, so it is made at build time from
authenticator/launcher.py: compiled, with a `#!` line that starts the interpreter with -I -S.
Installers would drop these flags from a `#!python` line, so setup.py writes the line. It names the
base interpreter of the build without its feature version (/usr/bin/python3) where that is the same
interpreter: after an upgrade of the distribution the script still starts. Bytecode is valid for one
feature version only; under another one the script compiles the source that it also holds. So the
cached credential is served even where the full program has to be installed again.
"""

import marshal
import sys
from pathlib import Path
from typing import Final

from setuptools import setup  # before distutils, which it brings

from distutils.command.build_scripts import build_scripts  # isort: skip

SOURCE: Final = Path("authenticator", "launcher.py")
NAME: Final = "kubelet-authenticator-tpm"
MARSHAL_VERSION: Final = 2 if sys.version_info < (3, 14) else 5
"""2 is the last without references, which differ from build to build.

Python 3.14 compiles `[1:]` to a constant slice, which only 5 can hold.
"""

TEMPLATE: Final = """\
#!{python} -IS
# Compiled from authenticator/launcher.py by setup.py; do not edit.
import sys
if sys.hexversion >> 16 == {version}:
    import marshal
    exec(marshal.loads({code!r}))
else:
    exec({source!r})
"""


def interpreter() -> Path:
    """Return the base interpreter, by a name that the next feature version will have too."""
    python = Path(getattr(sys, "_base_executable", sys.executable))
    unversioned = python.with_name("python3")
    same = unversioned.exists() and unversioned.samefile(python)
    return unversioned if same else python


class BuildLauncher(build_scripts):
    """Writes the launcher."""

    def run(self) -> None:
        """Compile the source into a standalone script."""
        source = SOURCE.read_text(encoding="utf-8")
        code = compile(source, SOURCE.name, "exec", dont_inherit=True, optimize=2)
        text = TEMPLATE.format(
            python=interpreter(),
            version=sys.hexversion >> 16,
            code=marshal.dumps(code, MARSHAL_VERSION),
            source=source,
        )
        script = Path(self.build_dir, NAME)
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)


setup(scripts=[str(SOURCE)], cmdclass={"build_scripts": BuildLauncher})
