"""The signer gives large blocks of memory back to the system when it frees them."""

import subprocess
import sys

CODE = """
import pathlib
from signer import cli

def resident():
    [line] = [l for l in pathlib.Path("/proc/self/status").read_text().splitlines() if "VmRSS" in l]
    return int(line.split()[1]) >> 10

cli._return_freed_memory()
large, small = [], []
for _ in range(1000):
    large.append(b"x" * (64 << 10))
    small.append(bytes(600))
full = resident()
large.clear()
# Of 62 MiB. The pages of other memory come and go meanwhile.
assert resident() <= full - 50, (full, resident())
"""


def test_large_blocks_between_small_ones_are_returned() -> None:
    """With 500 clusters, glibc kept 184 MiB of freed pages of lists and buffers of handshakes."""
    subprocess.run([sys.executable, "-c", CODE], check=True)
