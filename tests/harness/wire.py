"""A veth pair that connects a network namespace with this machine."""

import random
import secrets
import subprocess
from pathlib import Path
from typing import Final

from tests.harness.process import claim

NETWORK: Final = "198.18"
"""First half of all addresses here. RFC 2544 reserves it for tests of networks."""


class Wire:
    """One veth pair with its own network of four addresses."""

    def __init__(self) -> None:
        third, last = _unused_subnet()
        self.host_address = f"{NETWORK}.{third}.{last + 1}"
        self.address = f"{NETWORK}.{third}.{last + 2}"
        self.interface = f"e2e{secrets.token_hex(4)}"
        """Name of the host's end."""

    def connect(self, pid: int) -> None:
        """Create the pair, one end in the network namespace of a process, which routes over it."""
        output(
            "ip", "link", "add", self.interface, "type", "veth",
            "peer", "name", "eth0", "netns", str(pid),
        )  # fmt: skip
        output("ip", "addr", "add", f"{self.host_address}/30", "dev", self.interface)
        output("ip", "link", "set", self.interface, "up")
        inside = ("nsenter", "--target", str(pid), "--net", "--", "ip")
        output(*inside, "link", "set", "lo", "up")
        output(*inside, "addr", "add", f"{self.address}/30", "dev", "eth0")
        output(*inside, "link", "set", "eth0", "up")
        output(*inside, "route", "add", "default", "via", self.host_address)

    def exists(self) -> bool:
        """Return whether the host's end exists."""
        return Path("/sys/class/net", self.interface).exists()


def _unused_subnet() -> tuple[int, int]:
    """Return the last two numbers of a network of four addresses that no other test run uses."""
    numbers = random.Random().sample(range(256 * 64), 256 * 64)
    number = next(number for number in numbers if claim(f"network/{number}"))
    return number // 64, number % 64 * 4


def output(*argv: str | Path) -> str:
    """Run a program and return what it printed. Raise RuntimeError when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stdout}{done.stderr}")
    return done.stdout
