"""The files of the packages: their libraries, their size, and the same bytes in each build."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.harness.wire import output
from tests.packaging.node import packages
from tests.packaging.node.packages import BUILD, DEB, DIRECTORY, PROJECT, RPM, TREE, Kind

PROGRAM = TREE / DIRECTORY.lstrip("/")
OBJECTS = sorted(PROGRAM.rglob("*.so"))
MEBIBYTE = 1024 * 1024
PACKED_LIMIT = 8 * MEBIBYTE
INSTALLED_LIMIT = 25 * MEBIBYTE
PYTHONS = ("311", "312", "313", "314")
OF_GLIBC = {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
LOADED_BY_NAME = {"libtss2-tcti-device.so.0"}
"""tpm2-tss loads it when the program connects to /dev/tpmrm0."""


def dynamic(path: Path, tag: str) -> set[str]:
    """Return the values of a tag of the dynamic section."""
    return set(re.findall(rf"\({tag}\).*\[(.*)\]", output("readelf", "--dynamic", path)))


def test_there_are_shared_objects_for_each_python() -> None:
    names = " ".join(path.name for path in OBJECTS)
    assert re.findall(r"_cffi_backend\.cpython-(\d+)", names) == list(PYTHONS)
    assert len([name for name in names.split() if ".abi3." in name]) == 2


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.name)
def test_no_shared_object_has_a_runpath(path: Path) -> None:
    """A RUNPATH of the building machine is a directory that any user may create on a node."""
    assert dynamic(path, "RUNPATH") == dynamic(path, "RPATH") == set()


def needed() -> set[str]:
    """Return the libraries that the shipped objects need, without those of glibc."""
    return set().union(*(dynamic(path, "NEEDED") for path in OBJECTS)) - OF_GLIBC | LOADED_BY_NAME


def test_binding_is_built_without_fapi() -> None:
    assert {name for name in needed() if "fapi" in name or "policy" in name} == set()


def depends(kind: Kind) -> list[str]:
    """Return the dependencies of a format."""
    config = yaml.safe_load((BUILD / "nfpm.yaml").read_text(encoding="utf-8"))
    dependencies: list[str] = config["overrides"][kind.format]["depends"]
    return dependencies


def test_rpm_requires_exactly_the_needed_libraries() -> None:
    suffix = "()(64bit)"
    required = {name.removesuffix(suffix) for name in depends(RPM) if name.endswith(suffix)}
    assert required == needed()


def test_newest_required_glibc_is_the_declared_one() -> None:
    symbols = "".join(output("objdump", "--dynamic-syms", path) for path in OBJECTS)
    versions = {
        tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", symbols)
    }
    newest = ".".join(map(str, max(versions)))
    assert f"libc6 (>= {newest})" in depends(DEB)
    assert f"libc.so.6(GLIBC_{newest})(64bit)" in depends(RPM)


def test_upgrade_of_the_distribution_does_not_remove_the_package() -> None:
    """With an upper bound of Python, apt removes it: then the kubelet bootstraps without a TPM."""
    first = f"{PYTHONS[0][0]}.{PYTHONS[0][1:]}"
    for kind, form in ((DEB, f"python3 (>= {first})"), (RPM, f"python3 >= {first}")):
        assert [name for name in depends(kind) if name.startswith("python")] == [form]


def test_lintian_finds_no_error() -> None:
    deb = packages.find(PROJECT / "dist", DEB)
    output("lintian", "--allow-root", "--fail-on=error", deb)


@pytest.mark.parametrize("kind", [DEB, RPM], ids=str)
def test_package_is_small(kind: Kind) -> None:
    size = packages.find(PROJECT / "dist", kind).stat().st_size
    assert size <= PACKED_LIMIT, size


def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    subprocess.run([BUILD / "tree.sh", tree], check=True)
    subprocess.run([BUILD / "pack.sh", tree, tmp_path], check=True)
    for kind in (DEB, RPM):
        first, second = (packages.find(place, kind) for place in (PROJECT / "dist", tmp_path))
        assert first.read_bytes() == second.read_bytes(), kind


def test_installed_size_is_below_its_limit_with_bytecode(
    system: tuple[Kind, tuple[Path, ...]],
) -> None:
    _, (upper, *_) = system
    installed = upper / DIRECTORY.lstrip("/")
    size = sum(path.lstat().st_size for path in installed.rglob("*") if path.is_file())
    assert list(installed.rglob("*.pyc"))
    assert size <= INSTALLED_LIMIT, size
