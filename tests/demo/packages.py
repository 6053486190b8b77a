"""Follow the quick start from the files of a release: `make demo FROM=packages`.

All parts are real: the image of the signer with the permissions of its manifests, the deb in a
Debian machine under systemd with kubelet and kubeadm, and the wheel. The demo exits with status 1
when a step fails.
"""

import sys
import tempfile
from pathlib import Path

from tests.demo.narration import Narrator
from tests.packaging.newcomer import quick_start


def main() -> int:
    """Follow the page, and remove everything."""
    story = Narrator()
    with (
        tempfile.TemporaryDirectory(prefix="newcomer-") as name,
        quick_start.prepared(Path(name), story) as newcomer,
    ):
        started_at = story.elapsed
        newcomer.follow()
        story.step(f"the Node is Ready, {story.elapsed - started_at:.0f} s after the first command")
    return 0


if __name__ == "__main__":
    sys.exit(main())
