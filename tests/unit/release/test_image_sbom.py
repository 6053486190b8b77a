"""The SBOM of the image has the licenses and the hash of each Debian package."""

from pathlib import Path

import pytest

from tests.packaging.signer.sbom import make_sbom

FIELDS = "Package: {}\nVersion: 1.2-3\nArchitecture: amd64\nDescription: x\n y\nSHA256: {}\n"
FORMAT = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root file system with two packages."""
    status, documents = tmp_path / "var/lib/dpkg/status.d", tmp_path / "usr/share/doc"
    status.mkdir(parents=True)
    for name, digest in (("libone", "aa"), ("libtwo", "bb")):
        (status / name).write_text(FIELDS.format(name, digest), encoding="utf-8")
        (documents / name).mkdir(parents=True)
    text = f"{FORMAT}\nFiles: *\nLicense: MIT\n\nFiles: debian/*\nLicense: GPL-2+\n text\n"
    (documents / "libone/copyright").write_text(text, encoding="utf-8")
    # As the copyright of Python: a license in prose has no name.
    prose = "This package is of Python.\n\nLicense: Permission is hereby granted\n"
    (documents / "libtwo/copyright").write_text(prose, encoding="utf-8")
    return tmp_path


def test_debian_packages_have_licenses_and_hashes(root: Path) -> None:
    one, two = make_sbom(root, "1.2.3", {})["components"]
    assert [each["license"]["name"] for each in one["licenses"]] == ["GPL-2+", "MIT"]
    assert one["hashes"] == [{"alg": "SHA-256", "content": "aa"}]
    assert two["licenses"] == [{"license": {"name": "see usr/share/doc/libtwo/copyright"}}]


def test_package_without_its_copyright_is_an_error(root: Path) -> None:
    """The copyright of libgcc-s1 was missing in the image: it is in another package."""
    (root / "usr/share/doc/libtwo/copyright").unlink()
    with pytest.raises(FileNotFoundError, match="libtwo"):
        make_sbom(root, "1.2.3", {})
