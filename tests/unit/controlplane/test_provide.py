"""The order of sources of the programs, and refused downloads."""

import hashlib
import io
import platform
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.controlplane import golang, pins, provide, release
from tests.unit.controlplane.conftest import ReleaseSite

VERSION = pins.newest()
ARCHITECTURE = release.ARCHITECTURES[platform.machine()]
NOWHERE = release.Sites(kubernetes="http://127.0.0.1:1", etcd="http://127.0.0.1:1")


class RecordingBuilder:
    """A builder that writes and records the requested programs."""

    def __init__(self) -> None:
        self.built: list[list[str]] = []

    def __call__(
        self,
        pin: pins.Pin,
        programs: Sequence[str],
        directory: Path,
        cache: Path,
        environ: Mapping[str, str],
    ) -> None:
        """Write the programs."""
        assert pin.kubernetes == VERSION
        assert cache in directory.parents
        assert "HOME" in environ
        self.built.append(list(programs))
        for program in programs:
            write_program(directory, program)


def write_program(directory: Path, name: str, *, says: str = "") -> Path:
    """Write an executable file that prints a text."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    return program


def cache(environ: Mapping[str, str]) -> Path:
    """Return the cache directory of the newest version."""
    return Path(environ["HOME"], ".cache/node-attestation/controlplane", VERSION)


def release_program(site: ReleaseSite, name: str, body: bytes, *, checksum: str = "") -> str:
    """Add a Kubernetes program and its checksum to the site; return its path there."""
    path = f"/{VERSION}/bin/linux/{ARCHITECTURE}/{name}"
    site.files[path] = body
    site.files[f"{path}.sha256"] = (checksum or hashlib.sha256(body).hexdigest()).encode()
    return path


def release_etcd(site: ReleaseSite, binary: bytes) -> None:
    """Add an etcd archive and the list of checksums to the site."""
    version = pins.kubernetes(VERSION).etcd
    name = f"etcd-{version}-linux-{ARCHITECTURE}"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as opened:
        member = tarfile.TarInfo(f"{name}/etcd")
        member.size = len(binary)
        opened.addfile(member, io.BytesIO(binary))
    body = archive.getvalue()
    site.files[f"/{version}/{name}.tar.gz"] = body
    sums = f"{hashlib.sha256(body).hexdigest()}  {name}.tar.gz\n"
    site.files[f"/{version}/SHA256SUMS"] = sums.encode()


def test_directory_of_kubebuilder_assets_comes_first(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """KUBEBUILDER_ASSETS wins over the cache."""
    assets = tmp_path / "assets"
    write_program(assets, "kube-apiserver", says=f"Kubernetes {VERSION}")
    write_program(assets, "kubectl")
    write_program(cache(environ), "kubectl")
    environ["KUBEBUILDER_ASSETS"] = str(assets)
    assert provide.kubernetes(VERSION, ["kubectl"], environ=environ) == assets


@pytest.mark.parametrize(
    ("version", "programs"),
    [(VERSION, ["kube-apiserver"]), ("v1.36.2", ["kube-apiserver", "kubectl"])],
    ids=["lacks a program", "other minor version"],
)
def test_kubebuilder_assets_without_a_program_are_not_used(
    environ: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    version: str,
    programs: list[str],
) -> None:
    """A message names the reason, and the cache is used."""
    for program in programs:
        write_program(tmp_path / "assets", program, says=f"Kubernetes {version}")
    write_program(cache(environ), "kubectl")
    environ["KUBEBUILDER_ASSETS"] = str(tmp_path / "assets")
    assert provide.kubernetes(VERSION, ["kubectl"], environ=environ) == cache(environ)
    assert "is not used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("installed", "used"),
    [("v4.3.99+gabc", "bin"), ("v4.2.0", "cache"), ("v3.19.0", "cache")],
)
def test_helm_in_path_is_used_if_the_minor_version_fits(
    environ: dict[str, str], tmp_path: Path, installed: str, used: str
) -> None:
    """The chart of a release must not need a build of Helm where Helm is installed."""
    in_path = write_program(tmp_path / "bin", "helm", says=installed)
    version = pins.read(pins.HERE / "helm4/go.mod").required["helm.sh/helm/v4"]
    cached = write_program(cache(environ).with_name(f"helm4-{version}"), "helm4")
    environ["PATH"] = f"{in_path.parent}:/usr/bin:/bin"
    assert provide.tool("helm4", environ=environ) == {"bin": in_path, "cache": cached}[used]


def test_cached_programs_are_neither_downloaded_nor_built(
    environ: dict[str, str], site: ReleaseSite
) -> None:
    """The release site gets no request."""
    builder = RecordingBuilder()
    for program in provide.FEW:
        write_program(cache(environ), program)
    directory = provide.kubernetes(
        VERSION, provide.FEW, environ=environ, sites=site.sites, builder=builder
    )
    assert directory == cache(environ)
    assert (site.requested_paths, builder.built) == ([], [])


def test_cache_directory_follows_the_environment(environ: dict[str, str], tmp_path: Path) -> None:
    """XDG_CACHE_HOME is the cache directory."""
    environ["XDG_CACHE_HOME"] = str(tmp_path / "elsewhere")
    directory = provide.kubernetes(
        VERSION, ["etcd"], environ=environ, sites=NOWHERE, builder=RecordingBuilder()
    )
    assert directory == tmp_path / "elsewhere/node-attestation/controlplane" / VERSION


def test_release_is_downloaded_rather_than_built(
    environ: dict[str, str], site: ReleaseSite
) -> None:
    """The release has all three programs, and etcd in an archive."""
    builder = RecordingBuilder()
    release_program(site, "kube-apiserver", b"API server")
    release_program(site, "kubectl", b"client")
    release_etcd(site, b"store")
    directory = provide.kubernetes(
        VERSION, provide.FEW, environ=environ, sites=site.sites, builder=builder
    )
    assert {program: (directory / program).read_bytes() for program in provide.FEW} == {
        "kube-apiserver": b"API server",
        "etcd": b"store",
        "kubectl": b"client",
    }
    assert provide.missing(directory, provide.FEW) == []
    assert builder.built == []


def test_unreachable_release_is_built(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A message names the reason, and the build runs."""
    builder = RecordingBuilder()
    provide.kubernetes(VERSION, provide.FEW, environ=environ, sites=NOWHERE, builder=builder)
    assert builder.built == [list(provide.FEW)]
    assert "tried the official release: http://127.0.0.1:1" in capsys.readouterr().err


def test_wrong_checksum_is_refused(
    environ: dict[str, str], site: ReleaseSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file with another checksum is not installed."""
    builder = RecordingBuilder()
    release_program(site, "kubectl", b"forged", checksum=hashlib.sha256(b"real").hexdigest())
    directory = provide.kubernetes(
        VERSION, ["kubectl"], environ=environ, sites=site.sites, builder=builder
    )
    assert builder.built == [["kubectl"]]
    assert b"forged" not in (directory / "kubectl").read_bytes()
    assert "does not match its published checksum" in capsys.readouterr().err


def test_wrong_checksum_of_an_archive_is_refused_before_it_is_opened(
    environ: dict[str, str], site: ReleaseSite
) -> None:
    """The archive is not decompressed."""
    builder = RecordingBuilder()
    release_etcd(site, b"store")
    archive = next(path for path in site.files if path.endswith(".tar.gz"))
    site.files[archive] = b"no archive at all"
    provide.kubernetes(VERSION, ["etcd"], environ=environ, sites=site.sites, builder=builder)
    assert builder.built == [["etcd"]]


def test_interrupted_download_leaves_only_complete_programs(
    environ: dict[str, str], site: ReleaseSite
) -> None:
    """The next call downloads only the incomplete program again."""
    release_program(site, "kube-apiserver", b"API server")
    site.cut.add(release_program(site, "kubectl", b"client"))
    pin = pins.kubernetes(VERSION)
    directory = cache(environ)
    directory.mkdir(parents=True)
    with pytest.raises(release.NotDownloaded, match="checksum"):
        release.download(pin, ["kube-apiserver", "kubectl"], directory, site.sites)
    assert [path.name for path in directory.iterdir()] == ["kube-apiserver"]

    site.cut.clear()
    site.requested_paths.clear()
    provide.kubernetes(VERSION, ["kube-apiserver", "kubectl"], environ=environ, sites=site.sites)
    assert not [path for path in site.requested_paths if "kube-apiserver" in path]
    assert (directory / "kubectl").read_bytes() == b"client"


def test_two_callers_build_once(environ: dict[str, str]) -> None:
    """The second caller waits for the first, and uses its result."""
    builder = RecordingBuilder()

    def call(_: int) -> Path:
        return provide.kubernetes(
            VERSION, provide.FEW, environ=environ, sites=NOWHERE, builder=builder
        )

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(call, range(2))) == {cache(environ)}
    assert len(builder.built) == 1


def test_unknown_version_is_refused(environ: dict[str, str]) -> None:
    """Only pinned versions are provided."""
    with pytest.raises(pins.UnknownVersion, match=VERSION):
        provide.kubernetes("v1.0.0", ["etcd"], environ=environ, sites=NOWHERE)


def test_every_pinned_version_names_its_etcd() -> None:
    """The go.mod files name all versions of a download or build."""
    for version in (VERSION, "v1.35.8"):
        pin = pins.kubernetes(version)
        assert pin.kubernetes == version
        assert pins.parse(pin.etcd) >= (3, 6)
        assert pin.go >= (1, 24)


@pytest.mark.parametrize(
    ("version", "package"),
    [
        ("", "sigs.k8s.io/cluster-api/core"),
        ("v1.14.2", "sigs.k8s.io/cluster-api/core"),
        ("v1.13.6", "sigs.k8s.io/cluster-api"),
        ("v1.12.4", "sigs.k8s.io/cluster-api"),
    ],
)
def test_environment_chooses_the_version_of_cluster_api(
    environ: dict[str, str], version: str, package: str
) -> None:
    """The main package of the core manager moved in v1.14."""
    chosen = provide.cluster_api(environ | {"CLUSTER_API_VERSION": version})
    assert chosen.package == package
    assert pins.read(chosen.modfile).cluster_api == (version or "v1.14.2")


def test_unknown_version_of_cluster_api_is_refused(environ: dict[str, str]) -> None:
    """Only pinned versions are provided."""
    with pytest.raises(pins.UnknownVersion, match=r"v1\.12\.4, v1\.13\.6, v1\.14\.2"):
        provide.cluster_api(environ | {"CLUSTER_API_VERSION": "v1.11.0"})


def test_go_on_path_is_used_when_new_enough(environ: dict[str, str], tmp_path: Path) -> None:
    """A Go on PATH is used."""
    go = write_program(Path(environ["PATH"]), "go", says="go1.26.8")
    assert golang.find((1, 26, 0), tmp_path, environ) == go


def test_go_that_is_too_old_is_replaced(environ: dict[str, str], tmp_path: Path) -> None:
    """A Go that was installed before is used again."""
    write_program(Path(environ["PATH"]), "go", says="go1.19.8")
    brought = write_program(tmp_path / "go-1.26.6/go/bin", "go")
    assert golang.find((1, 26, 0), tmp_path, environ) == brought


def test_environment_does_not_change_what_is_built(environ: dict[str, str], tmp_path: Path) -> None:
    """Settings that change the binary are overridden."""
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho "{\\"Dir\\": \\"$GOFLAGS,$GOTOOLCHAIN,$CGO_ENABLED,$GOOS\\"}"')
    go.chmod(0o755)
    environ |= {"GOFLAGS": "-race", "GOTOOLCHAIN": "auto", "CGO_ENABLED": "1", "GOOS": "plan9"}
    seen = golang.module_directory(go, "any", modfile=tmp_path / "go.mod", environ=environ)
    assert str(seen) == "-mod=readonly,local,0,"


@pytest.mark.parametrize(
    ("need", "provided"),
    [("all", provide.ALL), ("etcd,kubectl", ["etcd", "kubectl"]), ("cluster-api", "cluster-api")],
)
def test_command_line_provides_programs_and_tools(
    need: str,
    provided: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`make controlplane` names programs, and tools such as Cluster API's manager."""
    seen: list[object] = []

    def note(*arguments: object) -> Path:
        seen.append(arguments[-1])
        return Path("/provided/program")

    monkeypatch.setattr(provide, "kubernetes", note)
    monkeypatch.setattr(provide, "tool", note)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["provide", "--need", need])
    provide.main()
    assert seen == [provided]
    assert capsys.readouterr().out.startswith("/provided")
