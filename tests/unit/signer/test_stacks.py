"""No thread of a program dies at an object that an API server can store."""

import signal
import subprocess
import sys

import pytest

DECODING = """
import json, sys, threading, msgspec
from signer.kinds.decode import AnyObject, decode
from signer.stacks import enlarge_stacks

def attempt(step, text):
    try:
        step(text)
    except (ValueError, RecursionError):
        pass

def run():
    for opening, closing in ((b'[', b']'), (b'{"a":', b'}')):
        text = b'{"x":' + opening * 9994 + b'1' + closing * 9994 + b'}'
        for step in (json.loads, msgspec.json.decode, lambda t: decode(t, AnyObject)):
            attempt(step, text)

enlarge_stacks()
if len(sys.argv) > 1:
    threading.stack_size(int(sys.argv[1]))
thread = threading.Thread(target=run)
thread.start()
thread.join()
print("decoded")
"""
STARTED = """
import sys, threading
from {module} import main
sys.argv = ["program", "--help"]
try:
    main()
except SystemExit:
    pass
print("stack", threading.stack_size(), threading.active_count())
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_thread_reads_the_deepest_object_that_is_stored() -> None:
    assert run(DECODING).stdout == "decoded\n"


def test_process_dies_where_the_stack_is_small() -> None:
    """The fault that the size of the stacks prevents: a thread of 256 KiB."""
    assert run(DECODING, str(256 << 10)).returncode == -signal.SIGSEGV


def test_main_thread_has_as_much() -> None:
    limits = "ulimit -S -s 256; exec"
    shell = f'{limits} {sys.executable} -c "$1"'
    program = (
        "import resource\nfrom signer.stacks import enlarge_stacks\nenlarge_stacks()\n"
        "print(resource.getrlimit(resource.RLIMIT_STACK)[0])"
    )
    done = subprocess.run(
        ["sh", "-c", shell, "sh", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == f"{4 << 20}\n", done.stderr


@pytest.mark.parametrize("module", ["signer.cli", "signer.insecure.cli", "signer.operator_cli.cli"])
def test_each_program_enlarges_the_stacks_before_it_has_threads(module: str) -> None:
    done = run(STARTED.format(module=module))
    assert done.stdout.splitlines()[-1] == f"stack {4 << 20} 1", done.stderr
