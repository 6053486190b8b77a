"""Networks between this machine and the machines of tests: veth pairs and bridges."""

import random
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from tests.harness.process import claim, wait_until

NETWORK: Final = "198.18"
"""First half of all addresses here. RFC 2544 reserves it for tests of networks."""

PREFIX: Final = 28
"""Each network has 14 addresses; the first one is this machine's."""


class Bridge:
    """A switch that several machines share with this one. A context manager."""

    def __init__(self) -> None:
        self._addresses = _unused_subnet()
        self.host_address = next(self._addresses)
        self.interface = f"br{secrets.token_hex(4)}"

    def next_address(self) -> str:
        """Return an address that no machine of this bridge has."""
        return next(self._addresses)

    def __enter__(self) -> Self:
        output("ip", "link", "add", self.interface, "type", "bridge")
        output("ip", "addr", "add", f"{self.host_address}/{PREFIX}", "dev", self.interface)
        output("ip", "link", "set", self.interface, "up")
        return self

    def __exit__(self, *_: object) -> None:
        output("ip", "link", "delete", self.interface)


class Wire:
    """A veth pair between a network namespace and this machine, or a bridge of it."""

    def __init__(self, bridge: Bridge | None = None) -> None:
        addresses = _unused_subnet()
        self._bridge = bridge
        self.host_address = bridge.host_address if bridge else next(addresses)
        self.address = bridge.next_address() if bridge else next(addresses)
        self.interface = f"e2e{secrets.token_hex(4)}"
        """Name of the host's end."""

    def connect(self, pid: int) -> None:
        """Create the pair, one end in the network namespace of a process, which routes over it."""
        output(
            "ip", "link", "add", self.interface, "type", "veth",
            "peer", "name", "eth0", "netns", str(pid),
        )  # fmt: skip
        if self._bridge:
            output("ip", "link", "set", self.interface, "master", self._bridge.interface)
        else:
            output("ip", "addr", "add", f"{self.host_address}/{PREFIX}", "dev", self.interface)
        output("ip", "link", "set", self.interface, "up")
        inside = ("nsenter", "--target", str(pid), "--net", "--", "ip")
        output(*inside, "link", "set", "lo", "up")
        output(*inside, "addr", "add", f"{self.address}/{PREFIX}", "dev", "eth0")
        output(*inside, "link", "set", "eth0", "up")
        output(*inside, "route", "add", "default", "via", self.host_address)

    def remove(self) -> None:
        """Remove the pair, if the end of its network namespace has not removed it yet.

        Connections with unsent data keep a network namespace for minutes after its processes.
        """
        subprocess.run(["ip", "link", "delete", self.interface], capture_output=True, check=False)
        path = Path("/sys/class/net", self.interface)
        wait_until(lambda: not path.exists(), what=f"{self.interface} is removed")


def _unused_subnet() -> Iterator[str]:
    """Return the addresses of a network that no other test run uses."""
    numbers = random.Random().sample(range(256 * 16), 256 * 16)
    number = next(number for number in numbers if claim(f"network/{number}"))
    return (f"{NETWORK}.{number // 16}.{number % 16 * 16 + last}" for last in range(1, 15))


def output(*argv: str | Path) -> str:
    """Run a program and return what it printed. Raise RuntimeError when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stdout}{done.stderr}")
    return done.stdout
