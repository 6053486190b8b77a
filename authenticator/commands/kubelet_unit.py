"""The kubelet's unit: whether the packaged drop-in counts, and a restart.

The drop-in is of the package, so a removed one comes back with the next upgrade. A link of its name
to /dev/null in /etc hides it from systemd until the link is removed.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

from authenticator.errors import KubeletUnitUnchangeable

HIDING_LINK: Final = Path(
    "/etc/systemd/system/kubelet.service.d/zz-20-kubelet-authenticator-tpm.conf"
)
SYSTEMCTL_SECONDS: Final = 90


def hide_drop_in(link: Path) -> None:
    """Let systemd ignore the packaged drop-in. Raises `KubeletUnitUnchangeable`."""
    try:
        if not link.parent.exists():
            link.parent.mkdir(parents=True)
            link.parent.chmod(0o755)  # whatever the umask is
        if not is_hidden(link):
            link.symlink_to(os.devnull)
    except FileExistsError as error:
        raise KubeletUnitUnchangeable(f"{link} is yours: move it away first") from error
    except OSError as error:
        raise KubeletUnitUnchangeable(f"{link}: {error.strerror}") from error
    _systemctl("daemon-reload")


def show_drop_in(link: Path) -> None:
    """Let systemd read the packaged drop-in again. Raises `KubeletUnitUnchangeable`."""
    if not is_hidden(link):
        return
    try:
        link.unlink()
    except OSError as error:
        raise KubeletUnitUnchangeable(f"{link}: {error.strerror}") from error
    _systemctl("daemon-reload")


def is_hidden(link: Path) -> bool:
    """Return whether the packaged drop-in is hidden."""
    return link.is_symlink() and link.readlink() == Path(os.devnull)


def restart_kubelet() -> None:
    """Ask systemd to restart the kubelet, and do not wait. Raises `KubeletUnitUnchangeable`."""
    _systemctl("restart", "--no-block", "kubelet.service")


def _systemctl(*arguments: str) -> None:
    try:
        subprocess.run(  # noqa: S603 - fixed arguments
            ["systemctl", *arguments],  # noqa: S607 - an operator's command, with the PATH of root
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SYSTEMCTL_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise KubeletUnitUnchangeable(f"systemctl {' '.join(arguments)} failed: {error}") from error
