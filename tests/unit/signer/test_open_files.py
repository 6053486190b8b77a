"""The signer may open as many files as the system allows: each workload cluster has connections."""

import subprocess
import sys

CODE = """
import resource
from signer import cli
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
cli._allow_open_files()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
"""


def test_soft_limit_of_open_files_becomes_the_hard_limit() -> None:
    """The usual soft limit of 1024 is too low for 500 clusters."""
    subprocess.run([sys.executable, "-c", CODE], check=True)
