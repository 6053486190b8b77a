"""Makes the picture of the dashboard: `make dashboard-picture`.

A real signer serves nodes with software TPMs for some minutes, and a real Prometheus scrapes it.
The page in `grafana/` draws the dashboard of the chart with Grafana's own libraries, from npm. It
queries this Prometheus, and Chromium takes the picture.
"""

import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from tests.controlplane import pins, provide
from tests.demo.narration import Narrator
from tests.harness.controlplane import HOST
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.signer import serving_all
from tests.harness.tpm import TrustDomain
from tests.integration.scripted_node import Script
from tests.packaging.signer.prometheus import Prometheus

ROOT: Final = Path(__file__).parents[2]
PICTURE: Final = ROOT / "docs/images/dashboard.png"
DASHBOARD: Final = ROOT / "packaging/signer/chart/files/dashboard.json"
PAGE: Final = Path(__file__).with_name("grafana")
BUILD: Final = ROOT / "build/dashboard"
PROGRAMS: Final = {"npm": "npm and Node.js 20", "chromium": "the Debian package chromium"}
"""What must be installed, apart from what `make setup` installs."""
_MINUTES: Final = 6
_SIZE: Final = "1400,2520"
_SECONDS_TO_DRAW: Final = 20


def build_page() -> Path:
    """Build the page from the locked packages, and return the directory to serve."""
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.copytree(PAGE, BUILD)
    shutil.copy(DASHBOARD, BUILD)
    for command in (["ci"], ["run", "build"]):
        subprocess.run(["npm", "--silent", *command], cwd=BUILD, check=True)
    site = BUILD / "site"
    shutil.copy(BUILD / "index.html", site)
    shutil.copytree(BUILD / "node_modules/@grafana/ui/dist/public", site / "public")
    return site


class Files(SimpleHTTPRequestHandler):
    """Serves files, and prints no line for each."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serve the files of a directory on this machine, and yield host and port."""
    handler = partial(Files, directory=str(directory))
    with ThreadingHTTPServer((HOST, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"{HOST}:{server.server_port}"
        server.shutdown()


def endorsement_key_rule(directory: Path, vendor: TrustDomain) -> dict[str, object]:
    """Write the authority of the TPMs and its revocation list, and return the rule of a policy."""
    authority, revocations = directory / "vendor.pem", directory / "vendor.crl"
    authority.write_bytes(vendor.root + vendor.intermediate)
    revocations.write_bytes(vendor.revoke())
    return {
        "trust": "RegisteredAndCertified",
        "certificateAuthorities": [str(authority)],
        "certificateRevocationLists": [str(revocations)],
    }


def load(machines: Machines) -> None:
    """Let nodes join for some minutes. Some requests are denied, and some have no Machine."""
    chance = random.Random(0)
    tenants = machines.fleet.tenants
    end, turn = time.monotonic() + _MINUTES * 60, 0
    while time.monotonic() < end:
        turn += 1
        node = machines.registered(chance.choice(tenants))
        Script(node).attest()
        if turn % 6 == 0:
            Script(machines.power_on(node.tenant, name=node.name)).refusal()
        if turn % 9 == 0:
            Script(machines.power_on(chance.choice(tenants))).waiting_for("MachineNotFound")
        time.sleep(chance.uniform(0, 15))


@contextmanager
def monitored(directory: Path, story: Narrator) -> Iterator[str]:
    """Run a signer that nodes have used, and yield the address of its Prometheus."""
    assets = provide.kubernetes(pins.newest(), ("kube-apiserver", "etcd", "kubectl"))
    vendor = TrustDomain(directory / "vendor")
    policy = {"endorsementKey": endorsement_key_rule(directory, vendor)}
    rules = directory / "rules.yaml"
    rules.write_text("groups: []\n", encoding="utf-8")
    with ExitStack() as stack:
        with story.timed("starting the control planes, the signer and Prometheus"):
            fleet = stack.enter_context(Fleet(directory / "fleet", assets))
            signer = stack.enter_context(serving_all(fleet, directory / "signer", policy))
            signer.wait_until_ready()
            prometheus = stack.enter_context(
                Prometheus(directory / "prometheus", signer.address, rules)
            )
        with story.timed("nodes join"):
            load(Machines(fleet, vendor, directory, stack))
        yield prometheus.address


def take_picture(address: str) -> None:
    """Take the picture of a page."""
    subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--window-size={_SIZE}", f"--virtual-time-budget={_SECONDS_TO_DRAW * 1000}",
            f"--screenshot={PICTURE}", address,
        ],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip


def main() -> int:
    """Build the page, run the signer, and write the picture."""
    for program, source in PROGRAMS.items():
        if shutil.which(program) is None:
            sys.stderr.write(f"dashboard: install {source}\n")
            return 1
    story = Narrator()
    story.chapter("Picture of the dashboard")
    with story.timed("building the page with Grafana's libraries"):
        site = build_page()
    with (
        tempfile.TemporaryDirectory(prefix="dashboard-") as name,
        monitored(Path(name), story) as prometheus,
        served(site) as host,
    ):
        take_picture(f"http://{host}/?prometheus={prometheus}&from=now-{_MINUTES}m")
    story.step(f"{PICTURE.relative_to(ROOT)} has {PICTURE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
