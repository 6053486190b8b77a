"""The image has what the signer needs and nothing else, and the chart's pod runs in it."""

import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from builders import image
from builders.version import PROJECT, project_version, semantic_version
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.management import ManagementCluster
from tests.harness.process import free_port
from tests.harness.signer import opt_in
from tests.harness.wire import output
from tests.packaging.signer.helm import CHART, NAMESPACE, RELEASE, helm
from tests.packaging.signer.pod import Pod

DIST: Final = PROJECT / "dist"
_ELF_MACHINES: Final = {"amd64": 0x3E, "arm64": 0xB7}
"""The field e_machine of ELF files."""
PROGRAMS: Final = {"python3", "python3.13", "node-attestation-signer"}


@pytest.fixture(scope="session")
def archive() -> Path:
    """Return the archive that `make image` has written."""
    [path] = DIST.glob(f"{image.NAME}-*.oci.tar")
    return path


@pytest.fixture(scope="session")
def root(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root file system of the image."""
    path = tmp_path_factory.mktemp("image") / "root"
    image.unpack_root(archive, path)
    return path


def run_in(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the root file system as the user of the image."""
    return subprocess.run(
        ["/usr/sbin/chroot", "--userspec=65532:65532", root, "/usr/bin/python3", "-I", *arguments],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("architecture", image.ARCHITECTURES)
def test_image_starts_the_signer_as_another_user_than_root(
    archive: Path, architecture: str
) -> None:
    config = image.read_config(archive, architecture)["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"][-1] == "/usr/local/bin/node-attestation-signer"
    assert "Cmd" not in config


def test_labels_name_the_program_its_source_and_its_license(archive: Path) -> None:
    labels = image.read_config(archive)["config"]["Labels"]
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}title"] == image.NAME
    assert labels[f"{prefix}version"] == semantic_version()
    assert labels[f"{prefix}licenses"] == "Apache-2.0"
    assert re.fullmatch("[0-9a-f]{40}", labels[f"{prefix}revision"])


def test_programs_of_both_architectures_are_the_same(archive: Path, tmp_path: Path) -> None:
    """Modules in Python have the same bytecode, and each library is there for each architecture."""
    trees = []
    for architecture in image.ARCHITECTURES:
        root = tmp_path / architecture
        image.unpack_root(archive, root, architecture)
        modules = {path.relative_to(root) for path in root.glob("usr/local/lib/**/*.py*")}
        trees.append(
            {path: (root / path).read_bytes() for path in modules if (root / path).is_file()}
        )
        libraries = [path for path in root.glob("usr/local/lib/**/*.so") if path.is_file()]
        assert {_machine(path) for path in libraries} == {_ELF_MACHINES[architecture]}
    assert trees[0] == trees[1]


def test_only_python_and_the_signer_can_be_executed(root: Path) -> None:
    """No shell, no package manager, no program of the nodes, no insecure signer."""
    programs = {
        path.name
        for path in _files(root)
        if path.stat().st_mode & stat.S_IXUSR and path.suffix != ".py" and _is_program(path)
    }
    assert programs <= PROGRAMS
    modules = {path.name for path in root.glob("usr/local/lib/python3.*/dist-packages/signer/*")}
    assert "verify" in modules
    assert "insecure" not in modules
    assert not list(root.glob("usr/local/lib/python3.*/dist-packages/authenticator"))


def test_packages_have_debians_security_updates() -> None:
    """The base of the image came from debootstrap, which names Debian's main archive alone."""
    indexes = output("chroot", image.debian_base(), "apt-get", "update", "--print-uris")
    assert re.findall(r"dists/(\S+)/InRelease'", indexes) == [
        "trixie",
        "trixie-updates",
        "trixie-security",
    ]


def test_signer_starts(root: Path) -> None:
    done = run_in(root, "/usr/local/bin/node-attestation-signer", "--version")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, project_version(), "")


def test_insecure_signer_is_an_image_of_its_own(archive: Path, tmp_path: Path) -> None:
    insecure = archive.with_name(image.archive_name(image.INSECURE_NAME))
    config = image.read_config(insecure)["config"]
    assert config["Labels"]["org.opencontainers.image.title"] == image.INSECURE_NAME
    assert config["User"] == "65532:65532"
    image.unpack_root(insecure, tmp_path / "root")
    done = run_in(tmp_path / "root", *config["Entrypoint"][2:], "--version")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, project_version(), "")


def test_no_file_gains_rights_or_can_be_changed_by_the_signer(root: Path) -> None:
    special = stat.S_ISUID | stat.S_ISGID
    assert not [path for path in _files(root) if path.stat().st_mode & (special | stat.S_IWOTH)]


def test_every_library_is_there(root: Path) -> None:
    """Each extension module of the standard library and of the packages can be imported."""
    script = (
        "import importlib.util, pathlib, sys, sysconfig\n"
        "failed = []\n"
        "for path in pathlib.Path(sysconfig.get_path('stdlib'), 'lib-dynload').glob('*.so'):\n"
        "    name = path.name.partition('.')[0]\n"
        "    if name.startswith(('_test', '_xxtest', 'xx')): continue\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError as error: failed.append(str(error))\n"
        "import _cffi_backend, cryptography.hazmat.bindings._rust, msgspec, yaml._yaml\n"
        "sys.exit('\\n'.join(failed) or 0)\n"
    )
    done = run_in(root, "-c", f"import importlib\n{script}")
    assert done.returncode == 0, done.stderr


def test_authorities_of_public_services_are_trusted(root: Path) -> None:
    """The APIs of platforms have certificates of such authorities."""
    code = "import ssl; print(len(ssl.create_default_context().get_ca_certs()))"
    assert int(run_in(root, "-c", code).stdout) > 100


def test_modules_are_compiled(root: Path) -> None:
    """The file system is read-only, so each start would compile them again."""
    sources = [
        path
        for pattern in ("usr/lib/python3.*/*.py", "usr/local/lib/python3.*/**/signer/**/*.py")
        for path in root.glob(pattern)
    ]
    assert len(sources) > 200
    for path in sources:
        assert list((path.parent / "__pycache__").glob(f"{path.stem}.cpython-*.pyc")), path


@pytest.fixture
def installed(fleet: Fleet) -> Iterator[ManagementCluster]:
    """Replace the permissions that the harness applies by those of the chart: Helm adopts none."""
    management = fleet.management
    management.remove_permissions()
    access: list[str | Path] = ["--namespace", NAMESPACE, "--kubeconfig", management.admin_config]
    port = f"metrics.port={free_port()}"
    helm("helm4", "install", RELEASE, CHART, *access, "--set", "crds.install=false", "--set", port)
    yield management
    helm("helm4", "uninstall", RELEASE, *access)


def test_node_joins_through_the_signer_of_the_chart(
    installed: ManagementCluster, fleet: Fleet, machines: Machines, root: Path, tmp_path: Path
) -> None:
    """The image's file system, the chart's arguments, user and volumes, and the chart's RBAC."""
    opt_in(fleet, fleet.first)
    pod = Pod(installed, NAMESPACE, RELEASE, root=root, directory=tmp_path)
    entrypoint = ["/usr/bin/python3", "-I", "/usr/local/bin/node-attestation-signer"]
    with pod.running(entrypoint):
        call = machines.registered().call()
        assert call.status == 0, (call.complaint, pod.log_lines)
    assert "Forbidden" not in pod.log_lines
    assert '"signer stopped"' in pod.log_lines


def _files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def _is_program(path: Path) -> bool:
    if ".so" in path.name:
        return False
    with path.open("rb") as file:
        return file.read(4).startswith((b"\x7fELF", b"#!"))


def _machine(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[18:20], "little")
