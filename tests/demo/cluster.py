"""Control planes and a signer for experiments: `make cluster`.

Starts a management cluster, two workload clusters and the signer, prints their kubeconfigs, and
stops everything at Ctrl-C.
"""

import os
import signal
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.controlplane import pins, provide
from tests.demo.narration import Narrator
from tests.harness.fleet import Fleet
from tests.harness.signer import serving_all

PROGRAMS = ("kube-apiserver", "etcd", "kubectl")


def describe(fleet: Fleet, signer_log: Path, story: Narrator) -> None:
    """Print what a shell needs to use the clusters."""
    story.chapter("Management cluster")
    story.quote(f"export KUBECONFIG={fleet.management.admin_config}")
    for tenant in fleet.tenants:
        story.chapter(f"Workload cluster {tenant.namespace}/{tenant.name}")
        story.quote(f"export KUBECONFIG={tenant.workload.admin_config}")
    story.chapter("Programs and logs")
    story.quote(f"export PATH={fleet.management.assets}:$PATH")
    story.quote(f"tail -f {signer_log}")


def main() -> int:
    """Run the clusters until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    story = Narrator()
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    assets = provide.kubernetes(version, PROGRAMS)
    with (
        suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="cluster-") as name,
        ExitStack() as stack,
    ):
        with story.timed(f"starting three control planes, Kubernetes {version}"):
            fleet = stack.enter_context(Fleet(Path(name, "fleet"), assets))
        with story.timed("starting the signer"):
            signer = stack.enter_context(serving_all(fleet, Path(name, "signer")))
            signer.wait_until_ready()
        describe(fleet, signer.log, story)
        story.chapter("Running until Ctrl-C")
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
