"""The workflows run only pinned actions and existing make targets, with few permissions."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[3]
WORKFLOWS: Final = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")
PINNED: Final = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def load(path: Path) -> dict[str, Any]:
    """Return a workflow as a mapping."""
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def commands(path: Path) -> list[str]:
    """Return all shell commands of a workflow."""
    steps = [step for job in load(path)["jobs"].values() for step in job["steps"]]
    return [step["run"] for step in steps if "run" in step]


def test_every_workflow_is_checked() -> None:
    assert {path.stem for path in WORKFLOWS} == {"ci", "release"}


@each_workflow
def test_actions_are_pinned_by_commit_and_state_their_version(path: Path) -> None:
    """A tag can be moved to other code; a commit cannot."""
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert used
    assert [line for line in used if not PINNED.fullmatch(line)] == []


@each_workflow
def test_each_job_states_its_permissions_and_time_limit(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["permissions"], name
        assert job["timeout-minutes"] <= 90, name


def test_only_the_job_that_runs_no_build_may_write() -> None:
    """Of the repository it gets the script that publishes, and nothing that a build has made."""
    jobs = {(p.stem, name): job for p in WORKFLOWS for name, job in load(p)["jobs"].items()}
    writers = {key for key, job in jobs.items() if "write" in job["permissions"].values()}
    assert writers == {("release", "publish")}
    steps = jobs["release", "publish"]["steps"]
    [checkout] = [step["with"] for step in steps if "actions/checkout" in step.get("uses", "")]
    assert checkout["sparse-checkout"] == "packaging/release"
    assert set(re.findall(r"source/\S+", str(steps))) == {"source/packaging/release/publish.sh"}
    assert "make " not in str(steps)


@each_workflow
def test_no_expression_is_expanded_into_a_shell_command(path: Path) -> None:
    """The name of a branch or tag could end the command and start another."""
    assert [command for command in commands(path) if "${{" in command] == []


@each_workflow
def test_make_targets_exist(path: Path) -> None:
    text = "\n".join(commands(path))
    targets = set(re.findall(r"\bmake ([a-z-]+)(?=$| )", text, re.MULTILINE))
    matrices = [job.get("strategy", {}).get("matrix", {}) for job in load(path)["jobs"].values()]
    targets |= {target for matrix in matrices for target in matrix.get("target", ())}
    assert targets <= set(re.findall(r"^\.PHONY: (\S+)$", MAKEFILE, re.MULTILINE))


def test_ci_covers_the_supported_versions() -> None:
    jobs = load(ROOT / ".github/workflows/ci.yml")["jobs"]
    versions = re.search(r"^VERSIONS := (.*)$", MAKEFILE, re.MULTILINE)
    assert versions is not None
    assert jobs["test"]["strategy"]["matrix"]["kubernetes"] == versions[1].split()
    assert jobs["python"]["strategy"]["matrix"]["python"] == ["3.12", "3.13", "3.14"]


def test_dependabot_watches_directories_that_exist() -> None:
    config = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))
    [modules] = [u for u in config["updates"] if u["package-ecosystem"] == "gomod"]
    for directory in modules["directories"]:
        assert (ROOT / directory.lstrip("/") / "go.mod").is_file(), directory
