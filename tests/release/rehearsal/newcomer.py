"""Follows the quick start with the published files, to a Ready node."""

from typing import Final

from tests.demo.narration import Narrator
from tests.packaging.newcomer import quick_start
from tests.packaging.newcomer.machine import NAME
from tests.release.rehearsal.registry import pull
from tests.release.rehearsal.stage import OLD, SITE, Stage
from tests.release.rehearsal.story import Step
from tests.release.rehearsal.workstation import Workstation

_DOWNLOAD: Final = f"""
mkdir files
cd files
curl --fail --silent --show-error --remote-name {SITE}/v{OLD}/SHA256SUMS
while read -r _ name; do
  curl --fail --silent --show-error --remote-name "{SITE}/v{OLD}/$name"
done <SHA256SUMS
sha256sum --check --strict --quiet SHA256SUMS
"""


def install(stage: Stage) -> str:
    """Download the files of 0.1.0, and run every command of the page."""
    download = Workstation(stage, "download")
    download.run(_DOWNLOAD)
    directory = stage.new_directory("newcomer")
    with quick_start.prepared(
        directory,
        Narrator(),
        release=download.directory / "files",
        pull=lambda name: pull(stage, name),
    ) as newcomer:
        newcomer.follow()
        node = newcomer.clusters.tenant.workload.admin.get(f"/api/v1/nodes/{NAME}")
    conditions = {(each["type"], each["status"]) for each in node["status"]["conditions"]}
    assert ("Ready", "True") in conditions, conditions
    return f"all {len(quick_start.blocks())} blocks have passed, and {NAME} is Ready"


STEPS: Final = (Step(phase="install", subject="quick-start", run=install),)
