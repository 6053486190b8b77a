"""Whether the kubelet holds the certificate in the cache, or an older one.

client-go keeps a credential in memory. It asks for another at the `expirationTimestamp` of its own,
and after a 401. So a certificate that came earlier, as by `renew`, is not the one that counts yet.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from authenticator.model import Clock
from authenticator.state.credential import STALE_EXPIRATION_SECONDS, Credential

_START_TICKS: Final = 19
"""Position of the start time in /proc/PID/stat, counted behind the name (proc(5), field 22)."""


def find_older_holder(
    credential: Credential | None,
    served: Mapping[int, int],
    clock: Clock,
    host_path: Callable[[Path], Path] = Path,
) -> int | None:
    """Return the process ID of a kubelet that holds an older certificate than the cached one.

    It runs since before the certificate came, and has not been `served` it: process IDs to times.
    A kubelet whose certificate was due asks within STALE_EXPIRATION_SECONDS. Others of this machine
    that run in containers do not count.
    """
    if credential is None or clock.now() < credential.received_at + STALE_EXPIRATION_SECONDS:
        return None
    proc = host_path(Path("/proc"))
    age = clock.now() - credential.received_at
    for path in proc.glob("[0-9]*"):
        pid = int(path.name)
        try:
            is_ours = (path / "ns/pid").readlink() == (proc / "self/ns/pid").readlink()
            stat = (path / "stat").read_text(encoding="utf-8", errors="replace")  # any name
            name, _, fields = stat.rpartition(")")
            started = int(fields.split()[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
        except OSError:
            continue  # it has ended
        runs_longer = clock.boottime() - started > age
        if is_ours and name.endswith("(kubelet") and runs_longer and pid not in served:
            return pid
    return None


def explain(pid: int) -> str:
    """Return what it means that this kubelet holds an older certificate."""
    return (
        f"the kubelet (process {pid}) has not asked for the certificate in the cache: it presents"
        " an older one, until the renewal of that one is due or the API server refuses it"
    )
