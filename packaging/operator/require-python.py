"""Runs before the commands for operators, in the one file that has them, on any Python 3."""

import platform
import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 14) or platform.machine() != "x86_64":
    sys.exit(
        "kubectl-attestation: python3 must be Python 3.11 to 3.14 on x86-64 Linux, not "
        + sys.version.split()[0]
        + " on "
        + platform.machine()
        + "; install the wheel for other systems"
    )
