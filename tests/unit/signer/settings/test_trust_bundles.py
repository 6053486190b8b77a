"""Trust bundles while the signer runs: valid changes are used, invalid ones raise an alarm."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from signer.errors import EndorsementCertificateRevoked
from signer.policy.policy import EndorsementKeyRules, Policy, TrustMode
from signer.settings.trust_bundles import TrustBundleFiles, TrustBundleInvalid, load_trust_bundle
from signer.verify.x509.endorsement_certificate import verify_endorsement_certificate
from signer.verify.x509.trust_anchors import NO_ANCHORS, TrustAnchors
from tests.builders.certificates import NOW, Issuer, authority, leaf, revocation_list, vendor

ROOT, BELOW = vendor()
OTHER = authority("Another Vendor Root CA")
KEY = ec.generate_private_key(ec.SECP256R1()).public_key()


@dataclass(slots=True)
class MountedBundle:
    """The files of a policy, and the signer that reloads them."""

    directory: Path
    policy: Policy
    files: TrustBundleFiles
    caplog: pytest.LogCaptureFixture

    def write(self, name: str, content: bytes) -> None:
        (self.directory / name).write_bytes(content)

    def reload_twice(self) -> None:
        """Read the files as often as a change needs to count."""
        for _ in range(2):
            self.files.reload()

    @property
    def anchors(self) -> TrustAnchors:
        return self.files.current["tenants"]

    @property
    def roots(self) -> list[str]:
        return [Path(anchor.source).name for anchor in self.anchors.roots]

    @property
    def events(self) -> list[str]:
        return [record.getMessage() for record in self.caplog.records]

    def alarms(self, reason: str = "TrustBundleInvalid") -> Iterator[str]:
        for record in self.caplog.records:
            fields = vars(record)["fields"]
            if fields.get("alarm"):
                assert (fields["policy"], fields["reason"]) == ("tenants", reason)
                yield fields["detail"]


@pytest.fixture
def mounted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> MountedBundle:
    caplog.set_level(logging.INFO, logger="signer")
    directory = tmp_path / "authorities"
    directory.mkdir()
    (directory / "root.der").write_bytes(ROOT.der)
    (directory / "below.der").write_bytes(BELOW.der)
    policy = Policy(
        name="tenants",
        endorsement_key=EndorsementKeyRules(
            trust=TrustMode.CERTIFIED, certificate_authorities=(str(directory),)
        ),
    )
    files = TrustBundleFiles([policy], {"tenants": load_trust_bundle(policy)})
    return MountedBundle(directory=directory, policy=policy, files=files, caplog=caplog)


def test_a_policy_without_authorities_has_no_anchors() -> None:
    files = TrustBundleFiles(
        [Policy(name="tenants")], {"tenants": load_trust_bundle(Policy(name="tenants"))}
    )
    for _ in range(2):
        files.reload()
    assert files.current == {"tenants": NO_ANCHORS}
    assert files.invalid == set()


def test_a_new_authority_is_used(mounted: MountedBundle) -> None:
    mounted.write("other.der", OTHER.der)
    mounted.reload_twice()
    assert mounted.roots == ["other.der", "root.der"]
    assert mounted.events == ["trust bundle loaded"]
    assert vars(mounted.caplog.records[0])["fields"] == {
        "policy": "tenants",
        "roots": 2,
        "intermediates": 1,
        "revocationLists": 0,
    }
    assert list(mounted.alarms()) == []


def test_a_reload_does_not_change_the_configuration(mounted: MountedBundle) -> None:
    loaded = MappingProxyType({"tenants": load_trust_bundle(mounted.policy)})
    files = TrustBundleFiles([mounted.policy], loaded)
    mounted.write("other.der", OTHER.der)
    for _ in range(2):
        files.reload()
    assert len(files.current["tenants"].roots) == 2
    assert len(loaded["tenants"].roots) == 1


def test_a_hidden_file_is_skipped(mounted: MountedBundle) -> None:
    """Editors create such files."""
    mounted.write(".other.der.swp", OTHER.der)
    mounted.reload_twice()
    assert mounted.roots == ["root.der"]


def test_a_subdirectory_is_skipped(mounted: MountedBundle) -> None:
    (mounted.directory / "old").mkdir()
    mounted.write("old/other.der", OTHER.der)
    mounted.reload_twice()
    assert mounted.roots == ["root.der"]
    assert mounted.files.invalid == set()


def test_a_removed_authority_is_not_used(mounted: MountedBundle) -> None:
    mounted.write("other.der", OTHER.der)
    (mounted.directory / "root.der").unlink()
    mounted.reload_twice()
    assert mounted.roots == ["other.der"]


def test_an_unchanged_bundle_is_loaded_and_logged_once(mounted: MountedBundle) -> None:
    for _ in range(5):
        mounted.reload_twice()
    assert mounted.events == ["trust bundle loaded"]


def test_a_mounted_configmap_is_replaced_as_a_whole(mounted: MountedBundle, tmp_path: Path) -> None:
    """The kubelet writes a new hidden directory, then renames a link to it over the old link."""
    directory = tmp_path / "mounted"
    for version, issuer in (("..1", ROOT), ("..2", OTHER)):
        (directory / version).mkdir(parents=True)
        (directory / version / "root.der").write_bytes(issuer.der)
    (directory / "..data").symlink_to("..1")
    (directory / "root.der").symlink_to("..data/root.der")
    policy = replace(
        mounted.policy,
        endorsement_key=replace(
            mounted.policy.endorsement_key, certificate_authorities=(str(directory),)
        ),
    )
    files = TrustBundleFiles([policy], {"tenants": load_trust_bundle(policy)})
    (directory / "..data_tmp").symlink_to("..2")
    (directory / "..data_tmp").rename(directory / "..data")
    for _ in range(2):
        files.reload()
    [root] = files.current["tenants"].roots
    assert root.fields.der == OTHER.der


def test_a_half_written_file_is_not_used(mounted: MountedBundle) -> None:
    """Each read differs from the one before, until the file is complete."""
    mounted.reload_twice()
    for size in (100, 200, 300):
        mounted.write("other.der", OTHER.der[:size])
        mounted.files.reload()
    mounted.write("other.der", OTHER.der)
    mounted.reload_twice()
    assert mounted.roots == ["other.der", "root.der"]
    assert mounted.events == ["trust bundle loaded"] * 2


@pytest.mark.parametrize("fault", ["no file", "no certificate", "no root", "no directory"])
def test_an_invalid_bundle_is_not_used_and_raises_one_alarm(
    mounted: MountedBundle, fault: str
) -> None:
    """The signer would not start with it; a running signer keeps the last valid one."""
    (mounted.directory / "root.der").unlink()
    if fault == "no certificate":
        mounted.write("root.der", b"-----BEGIN NOTHING-----")
    if fault in {"no file", "no directory"}:
        (mounted.directory / "below.der").unlink()
    if fault == "no directory":
        mounted.directory.rmdir()
    for _ in range(3):
        mounted.reload_twice()
    assert mounted.roots == ["root.der"]
    assert mounted.files.invalid == {"tenants"}
    [alarm] = mounted.alarms()
    assert alarm
    with pytest.raises(TrustBundleInvalid):
        load_trust_bundle(mounted.policy)


def test_a_corrected_bundle_is_used(mounted: MountedBundle) -> None:
    (mounted.directory / "root.der").unlink()
    mounted.reload_twice()
    mounted.write("other.der", OTHER.der)
    mounted.reload_twice()
    assert mounted.roots == ["other.der"]
    assert mounted.files.invalid == set()


def test_unreadable_authorities_are_logged(mounted: MountedBundle) -> None:
    mounted.write("unreadable.der", b"\x30\x03\x02\x01\x00")
    mounted.reload_twice()
    assert mounted.events == ["trust bundle loaded", "authorities left out"]
    fields = vars(mounted.caplog.records[-1])["fields"]
    assert fields["policy"] == "tenants"
    assert "unreadable.der" in fields["detail"]
    assert mounted.roots == ["root.der"]


def with_lists(mounted: MountedBundle, lists: Path) -> Policy:
    lists.mkdir()
    return replace(
        mounted.policy,
        endorsement_key=replace(
            mounted.policy.endorsement_key, certificate_revocation_lists=(str(lists),)
        ),
    )


def verify(anchors: TrustAnchors, issuer: Issuer = BELOW) -> None:
    verify_endorsement_certificate([leaf(issuer, KEY)], KEY, anchors=anchors, now=NOW)


def test_a_new_revocation_list_is_used(mounted: MountedBundle, tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    policy = with_lists(mounted, lists)
    (lists / "below.crl").write_bytes(revocation_list(BELOW))
    files = TrustBundleFiles([policy], {"tenants": load_trust_bundle(policy)})
    verify(files.current["tenants"])
    (lists / "below.crl").write_bytes(revocation_list(BELOW, 7))
    assert [files.reload() for _ in range(3)] == [False, True, False]
    with pytest.raises(EndorsementCertificateRevoked):
        verify(files.current["tenants"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "certificateRevocationLists must name at least one revocation list"),
        (b"", "not a revocation list"),
        (b"no list", "not a revocation list"),
    ],
)
def test_removed_revocation_lists_stay_in_use(
    mounted: MountedBundle, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    """No list would mean that nothing is revoked."""
    lists = tmp_path / "lists"
    policy = with_lists(mounted, lists)
    file = lists / "below.crl"
    file.write_bytes(revocation_list(BELOW, 7))
    files = TrustBundleFiles([policy], {"tenants": load_trust_bundle(policy)})
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    for _ in range(2):
        files.reload()
    assert files.invalid == {"tenants"}
    with pytest.raises(EndorsementCertificateRevoked):
        verify(files.current["tenants"])
    with pytest.raises(TrustBundleInvalid, match=problem):
        load_trust_bundle(policy)


@pytest.mark.parametrize("at_the_start", [False, True])
def test_a_revocation_list_without_its_authority_raises_an_alarm(
    mounted: MountedBundle,
    tmp_path: Path,
    at_the_start: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    """It revokes nothing: here it is of another vendor."""
    lists = tmp_path / "lists"
    policy = with_lists(mounted, lists)
    (lists / "below.crl").write_bytes(revocation_list(BELOW))
    other = lists / "other.crl"
    if at_the_start:
        other.write_bytes(revocation_list(OTHER))
    files = TrustBundleFiles([policy], {"tenants": load_trust_bundle(policy)})
    if not at_the_start:
        files.reload()
        assert list(mounted.alarms()) == []
        other.write_bytes(revocation_list(OTHER))
    for _ in range(5):
        files.reload()
    assert list(mounted.alarms("RevocationListUnmatched")) == [str(other)]
    assert files.invalid == set()
