"""Decoding of Kubernetes objects, by many threads at once."""

import subprocess
import sys

_FIRST_USES = """
import sys
from threading import Barrier, Thread

from signer.kinds.decode import Fields, decode

THREADS = 8
sys.setswitchinterval(1e-6)
start = Barrier(THREADS)


def struct(annotations):
    return type("Struct", (Fields,), {"__annotations__": annotations})


def use(shape):
    start.wait()
    decode(b'{"inner": {"inner": {"text": "a"}}}', shape)


for _ in range(100):
    shape = struct({"inner": struct({"inner": struct({"text": str})})})
    threads = [Thread(target=use, args=(shape,)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("decoded")
"""


def test_first_use_of_a_struct_by_many_threads_does_not_end_the_process() -> None:
    """The signer starts all its reflectors at once, and some of their structs share parts."""
    result = subprocess.run(
        [sys.executable, "-c", _FIRST_USES], check=False, capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (0, "decoded\n"), result.stderr
