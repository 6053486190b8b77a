"""Runs the insecure signer: `python3 -m signer.insecure`. No installation has a script for it."""

import sys

from signer.insecure.cli import main

sys.exit(main())
