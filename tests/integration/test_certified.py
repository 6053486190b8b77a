"""E2 with a vendor's authorities: which TPMs join, and which are refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.harness.tpm import EndorsementKey, TrustDomain
from tests.integration import csrs

RSA = EndorsementKey.RSA_2048
TAKEN = "trust bundle loaded"


@pytest.fixture(scope="module")
def authorities(vendor: TrustDomain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the vendor's authorities in the layout of a mounted ConfigMap."""
    directory = tmp_path_factory.mktemp("authorities")
    mount(directory, vendor)
    (directory / "vendor.pem").symlink_to("..data/vendor.pem")
    return directory


def mount(directory: Path, *domains: TrustDomain) -> None:
    """Write another version of a ConfigMap, and put it in place in the way the kubelet does."""
    version = directory / f"..{len(list(directory.iterdir()))}"
    version.mkdir()
    pem = b"".join(domain.root + domain.intermediate for domain in domains)
    (version / "vendor.pem").write_bytes(pem)
    link = directory / "..data_tmp"
    link.symlink_to(version.name)
    link.rename(directory / "..data")


@pytest.fixture(scope="module")
def revocations(vendor: TrustDomain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the vendor's revocation list, which revokes nothing."""
    file = tmp_path_factory.mktemp("revocations") / "vendor.crl"
    file.write_bytes(vendor.revoke())
    return file


@pytest.fixture(scope="module", autouse=True)
def certifying(
    signer: Signer, fleet: Fleet, authorities: Path, revocations: Path
) -> Iterator[Signer]:
    """Require certificates in one cluster, and certificate and record in the other."""
    files = {
        "certificateAuthorities": [str(authorities)],
        "certificateRevocationLists": [str(revocations)],
    }
    specs = [
        of_cluster(tenant, endorsementKey={"trust": trust, **files})
        for tenant, trust in zip(
            fleet.tenants, ("Certified", "RegisteredAndCertified"), strict=True
        )
    ]
    known_lines = len(signer.lines)
    with signer.with_policies(*specs) as running:
        # The signer loads the first files once more after it has read the same content twice.
        wait_until(lambda: loaded(running, known_lines), what="the files are loaded")
        yield running


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> TrustDomain:
    """Make the authority of another vendor."""
    return TrustDomain(tmp_path_factory.mktemp("stranger"))


def loaded(signer: Signer, known_lines: int) -> bool:
    """Return whether the signer loaded both policies' files after this many lines of its log."""
    lines = [line for line in signer.lines[known_lines:] if line["event"] == TAKEN]
    return {line["policy"] for line in lines} == {"policy-0", "policy-1"}


def test_a_tpm_of_the_vendor_joins(machines: Machines, fleet: Fleet) -> None:
    node = machines.known()
    assert node.call().status == 0
    assert csrs.held(node, fleet.management.admin)["basis"] == "Certificate"


def test_a_tpm_of_another_vendor_is_refused(machines: Machines, stranger: TrustDomain) -> None:
    """Its authorities have the same names as the vendor's, and other keys."""
    node = machines.known(tpm=machines.tpm(stranger))
    call = node.call()
    assert call.status == 1
    assert "EndorsementCertificateUntrusted" in call.complaint


def test_tpm_with_certificate_and_record_joins(machines: Machines, fleet: Fleet) -> None:
    node = machines.registered(fleet.second)
    assert node.call().status == 0
    assert csrs.held(node, fleet.management.admin)["basis"] == "Registered"


def test_new_revocation_is_loaded_while_the_signer_runs(
    machines: Machines, certifying: Signer, revocations: Path, vendor: TrustDomain
) -> None:
    node, other = machines.known(), machines.known()
    assert node.call().status == 0
    serial = x509.load_der_x509_certificate(node.tpm.certificate(RSA)).serial_number
    known_lines = len(certifying.lines)
    revocations.write_bytes(vendor.revoke(serial))
    wait_until(lambda: loaded(certifying, known_lines), what="the revocation list is loaded")
    renewed = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
    assert "EndorsementCertificateRevoked" in renewed.complaint
    assert other.call().status == 0


@contextmanager
def mounted(directory: Path, *domains: TrustDomain) -> Iterator[None]:
    """Let the ConfigMap contain other authorities during a test."""
    known_lines = (directory / "..data").readlink()
    mount(directory, *domains)
    try:
        yield
    finally:
        (directory / "..data_tmp").symlink_to(known_lines)
        (directory / "..data_tmp").rename(directory / "..data")


def test_new_authorities_are_loaded_while_the_signer_runs(
    machines: Machines,
    certifying: Signer,
    authorities: Path,
    vendor: TrustDomain,
    stranger: TrustDomain,
) -> None:
    """A later empty bundle changes nothing, and raises the alarm."""

    def metric(name: str) -> list[float]:
        lines = certifying.ask("/metrics").text.splitlines()
        name = f"node_attestation_{name}{{"
        return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)]

    node = machines.known(tpm=machines.tpm(stranger))
    with mounted(authorities, vendor, stranger):
        # Two policies, each with two roots and two intermediates.
        expiry = "trust_anchor_not_after_seconds"
        wait_until(lambda: len(metric(expiry)) == 8, what="the new authorities are loaded")
        assert node.call().status == 0
        with mounted(authorities):
            invalid = "trust_anchors_invalid"
            wait_until(lambda: metric(invalid) == [1, 1], what="the alarm")
            assert len(metric(expiry)) == 8
            renewed = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
            assert renewed.status == 0, renewed.complaint
    wait_until(lambda: len(metric(expiry)) == 4, what="the old authorities are loaded")
    alarms = [line for line in certifying.lines if line["event"] == "trust bundle is invalid"]
    assert {line["policy"] for line in alarms} == {"policy-0", "policy-1"}
    assert all(line["alarm"] and "no root" in line["detail"] for line in alarms)
