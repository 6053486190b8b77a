"""Trust anchors while the signer runs: what changes is taken, and what is nothing is not."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from signer.errors import EndorsementCertificateRevoked
from signer.policy import Policy, TrustMode
from signer.trust_bundles import TrustBundleFiles, TrustBundleInvalid, load_trust_bundle
from signer.verify.x509.endorsement_certificate import verify_endorsement_certificate
from signer.verify.x509.trust_anchors import NO_ANCHORS, TrustAnchors
from tests.builders.certificates import NOW, Issuer, authority, leaf, revocation_list, vendor

ROOT, BELOW = vendor()
OTHER = authority("Another Vendor Root CA")
KEY = ec.generate_private_key(ec.SECP256R1()).public_key()


@dataclass(slots=True)
class Mounted:
    """Files as an operator keeps them, and the signer that looks at them."""

    folder: Path
    policy: Policy
    files: TrustBundleFiles
    caplog: pytest.LogCaptureFixture

    def write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)

    def settle(self) -> None:
        """Let the signer look until what it sees has settled."""
        for _ in range(2):
            self.files.reload()

    @property
    def anchors(self) -> TrustAnchors:
        return self.files.current["tenants"]

    @property
    def roots(self) -> list[str]:
        return [Path(anchor.source).name for anchor in self.anchors.roots]

    @property
    def told(self) -> list[str]:
        return [record.getMessage() for record in self.caplog.records]

    def alarms(self) -> Iterator[str]:
        for record in self.caplog.records:
            fields = vars(record)["fields"]
            if fields.get("alarm"):
                assert (fields["policy"], fields["reason"]) == ("tenants", "TrustBundleInvalid")
                yield fields["detail"]


@pytest.fixture
def mounted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Mounted:
    caplog.set_level(logging.INFO, logger="signer")
    folder = tmp_path / "authorities"
    folder.mkdir()
    (folder / "root.der").write_bytes(ROOT.der)
    (folder / "below.der").write_bytes(BELOW.der)
    policy = Policy(
        name="tenants", trust=TrustMode.CERTIFIED, certificate_authorities=(str(folder),)
    )
    files = TrustBundleFiles([policy], {"tenants": load_trust_bundle(policy)})
    return Mounted(folder=folder, policy=policy, files=files, caplog=caplog)


def test_what_was_loaded_at_the_start_counts(mounted: Mounted) -> None:
    assert mounted.roots == ["root.der"]


def test_a_policy_that_asks_for_no_certificate_has_no_anchors() -> None:
    files = TrustBundleFiles(
        [Policy(name="tenants")], {"tenants": load_trust_bundle(Policy(name="tenants"))}
    )
    for _ in range(2):
        files.reload()
    assert files.current == {"tenants": NO_ANCHORS}
    assert files.invalid == set()


def test_a_new_authority_is_taken(mounted: Mounted) -> None:
    mounted.write("other.der", OTHER.der)
    mounted.settle()
    assert mounted.roots == ["other.der", "root.der"]
    assert mounted.told == ["trust anchors taken"]
    assert vars(mounted.caplog.records[0])["fields"] == {
        "policy": "tenants",
        "roots": 2,
        "intermediates": 1,
        "revocationLists": 0,
    }
    assert list(mounted.alarms()) == []


def test_what_was_loaded_at_the_start_is_left_as_it_was(mounted: Mounted) -> None:
    loaded = MappingProxyType({"tenants": load_trust_bundle(mounted.policy)})
    files = TrustBundleFiles([mounted.policy], loaded)
    mounted.write("other.der", OTHER.der)
    for _ in range(2):
        files.reload()
    assert len(files.current["tenants"].roots) == 2
    assert len(loaded["tenants"].roots) == 1


def test_a_hidden_file_is_none_of_the_operators(mounted: Mounted) -> None:
    """Editors leave such files behind."""
    mounted.write(".other.der.swp", OTHER.der)
    mounted.settle()
    assert mounted.roots == ["root.der"]


def test_a_folder_in_the_folder_is_no_file(mounted: Mounted) -> None:
    (mounted.folder / "old").mkdir()
    mounted.write("old/other.der", OTHER.der)
    mounted.settle()
    assert mounted.roots == ["root.der"]
    assert mounted.files.invalid == set()


def test_an_authority_that_is_taken_away_is_gone(mounted: Mounted) -> None:
    mounted.write("other.der", OTHER.der)
    (mounted.folder / "root.der").unlink()
    mounted.settle()
    assert mounted.roots == ["other.der"]


def test_what_did_not_change_is_told_once(mounted: Mounted) -> None:
    for _ in range(5):
        mounted.settle()
    assert mounted.told == ["trust anchors taken"]


def test_a_mounted_configmap_is_swapped_whole(mounted: Mounted, tmp_path: Path) -> None:
    """The kubelet makes a new hidden folder and renames a link over the one that was."""
    folder = tmp_path / "mounted"
    for version, root in (("..1", ROOT), ("..2", OTHER)):
        (folder / version).mkdir(parents=True)
        (folder / version / "root.der").write_bytes(root.der)
    (folder / "..data").symlink_to("..1")
    (folder / "root.der").symlink_to("..data/root.der")
    policy = replace(mounted.policy, certificate_authorities=(str(folder),))
    files = TrustBundleFiles([policy], {"tenants": load_trust_bundle(policy)})
    (folder / "..data_tmp").symlink_to("..2")
    (folder / "..data_tmp").rename(folder / "..data")
    for _ in range(2):
        files.reload()
    [found] = files.current["tenants"].roots
    assert found.fields.der == OTHER.der


def test_a_file_that_is_being_written_is_left_alone(mounted: Mounted) -> None:
    """Each reading differs from the one before it, until all of it is there."""
    mounted.settle()
    for size in (100, 200, 300):
        mounted.write("other.der", OTHER.der[:size])
        mounted.files.reload()
    mounted.write("other.der", OTHER.der)
    mounted.settle()
    assert mounted.roots == ["other.der", "root.der"]
    assert mounted.told == ["trust anchors taken"] * 2


@pytest.mark.parametrize("what", ["nothing", "no certificate", "no root", "no folder"])
def test_a_bundle_of_nothing_changes_nothing(mounted: Mounted, what: str) -> None:
    """At the start it would have been refused; now what counted goes on counting."""
    (mounted.folder / "root.der").unlink()
    if what == "no certificate":
        mounted.write("root.der", b"-----BEGIN NOTHING-----")
    if what in {"nothing", "no folder"}:
        (mounted.folder / "below.der").unlink()
    if what == "no folder":
        mounted.folder.rmdir()
    for _ in range(3):
        mounted.settle()
    assert mounted.roots == ["root.der"]
    assert mounted.files.invalid == {"tenants"}
    [alarm] = mounted.alarms()
    assert alarm
    with pytest.raises(TrustBundleInvalid):
        load_trust_bundle(mounted.policy)


def test_a_bundle_that_is_put_right_is_taken(mounted: Mounted) -> None:
    (mounted.folder / "root.der").unlink()
    mounted.settle()
    mounted.write("other.der", OTHER.der)
    mounted.settle()
    assert mounted.roots == ["other.der"]
    assert mounted.files.invalid == set()


def test_authorities_that_nobody_can_read_are_told(mounted: Mounted) -> None:
    mounted.write("unreadable.der", b"\x30\x03\x02\x01\x00")
    mounted.settle()
    assert mounted.told == ["trust anchors taken", "authorities left out"]
    fields = vars(mounted.caplog.records[-1])["fields"]
    assert fields["policy"] == "tenants"
    assert "unreadable.der" in fields["detail"]
    assert mounted.roots == ["root.der"]


def listed(mounted: Mounted, lists: Path) -> Policy:
    lists.mkdir()
    return replace(mounted.policy, certificate_revocation_lists=(str(lists),))


def verify(anchors: TrustAnchors, issuer: Issuer = BELOW) -> None:
    verify_endorsement_certificate([leaf(issuer, KEY)], KEY, anchors=anchors, now=NOW)


def test_a_new_revocation_list_is_taken(mounted: Mounted, tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    policy = listed(mounted, lists)
    (lists / "below.crl").write_bytes(revocation_list(BELOW))
    files = TrustBundleFiles([policy], {"tenants": load_trust_bundle(policy)})
    verify(files.current["tenants"])
    (lists / "below.crl").write_bytes(revocation_list(BELOW, 7))
    assert [files.reload() for _ in range(3)] == [False, True, False]
    with pytest.raises(EndorsementCertificateRevoked):
        verify(files.current["tenants"])


@pytest.mark.parametrize("content", [None, b"", b"no list"])
def test_revocation_lists_that_went_away_go_on_counting(
    mounted: Mounted, tmp_path: Path, content: bytes | None
) -> None:
    """No list would mean that nothing is revoked."""
    lists = tmp_path / "lists"
    policy = listed(mounted, lists)
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
    with pytest.raises(TrustBundleInvalid):
        load_trust_bundle(policy)
