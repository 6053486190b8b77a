"""Statements of the documentation that were false once, each held by the code that it is about."""

import logging
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from authenticator.commands.endorsement_key import format_text
from authenticator.state.credential import RENEWAL_FRACTION, RENEWAL_SPREAD
from common.names import CHALLENGE_ANNOTATION, ENDORSEMENT_KEY_ANNOTATION, PENDING_REASON_ANNOTATION
from signer.controller.maintenance.housekeeping import enforce_auto_approve_policy
from signer.fairness.outbox import Outbox
from signer.inventory.cluster_api.key_annotation import read_key_annotation
from signer.inventory.replica_records.challenge_keys import PREVIOUS_KEY_TTL, ROTATION_PERIOD
from signer.policy.policy import AutoApproveBindings, EndorsementKeyRules, Policy, TrustMode
from signer.settings.trust_bundles import load_trust_bundle
from tests.builders.certificates import Issuer, authority
from tests.builders.reconciler import Rate, ReconcilerFixture
from tests.builders.scenario import HOME
from tests.controlplane import pins
from tests.harness.documentation import ROOT, blocks
from tests.harness.workload import PACKAGING


def raw(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose(name: str) -> str:
    """Return a page without line breaks within its sentences."""
    return " ".join(raw(name).split())


def denied(fixture: ReconcilerFixture) -> str:
    return fixture.file(replace(fixture.scenario.offer_csr(), usages=("server auth",))).name


def waiting(fixture: ReconcilerFixture) -> str:
    fixture.scenario.store.machines[HOME] = []
    return fixture.file(fixture.scenario.offer_csr()).name


def ignored(fixture: ReconcilerFixture) -> str:
    inventory = fixture.scenario.inventory
    inventory.of = replace(inventory.of, client_signers=frozenset())
    return fixture.file(fixture.scenario.offer_csr()).name


def without_authority(fixture: ReconcilerFixture) -> str:
    fixture.authorities.away = True
    return fixture.file(fixture.scenario.answer_csr()).name


def tried_again(fixture: ReconcilerFixture) -> str:
    fixture.rate = Rate(left=0)
    return fixture.file(fixture.scenario.offer_csr()).name


FAMILIES: dict[str, Callable[[ReconcilerFixture], str]] = {
    "[Denied](#denied)": denied,
    "[Waiting](#waiting)": waiting,
    "[Ignored](#ignored)": ignored,
    "[Tried again](#tried-again), `AccessReviewUnavailable`, `AttestedNodeUnreadable`,"
    " `AuthorityUnavailable`, `ChallengeKeyUnavailable`, `EndedCertificatesNotListed` or"
    " `PermissionMissing`": without_authority,
    "[Tried again](#tried-again), any other reason": tried_again,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_reasons_appear_where_the_documentation_says(
    family: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It said that every reason appears in an Event; most do not."""
    caplog.set_level(logging.DEBUG, logger="signer")
    fixture = ReconcilerFixture()
    name = FAMILIES[family](fixture)
    fixture.reconcile(fixture.csrs.stored[name])
    csr = fixture.csrs.stored[name]
    [line] = [record for record in caplog.records if record.getMessage() == "verdict"]
    shown = [
        "yes" if appears else "no"
        for appears in (
            csr.conditions,
            PENDING_REASON_ANNOTATION in csr.annotations,
            fixture.csrs.events,
        )
    ]
    [row] = [row for row in raw("docs/reasons.md").splitlines() if row.startswith(f"| {family} |")]
    assert row == f"| {family} | {' | '.join(shown)} | {line.levelname.lower()} |"


def test_author_of_a_ban_is_shown_only_as_yaml() -> None:
    """docs/reasons.md said that `kubectl get endorsementkey` shows who banned a key."""
    crd = yaml.safe_load((PACKAGING / "crds/endorsementkeys.yaml").read_text(encoding="utf-8"))
    [version] = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    members = {f".spec.banned.{name}" for name in spec["banned"]["properties"]}
    members -= {".spec.banned.node"}
    assert members == {".spec.banned.reason", ".spec.banned.by", ".spec.banned.since"}
    columns = {column["jsonPath"] for column in version["additionalPrinterColumns"]}
    assert columns & members == {".spec.banned.reason"}
    assert (
        "`kubectl get endorsementkey NAME` shows the reason of the ban, and with `-o yaml` also its"
        " author and time." in prose("docs/reasons.md")
    )


def test_no_annotation_with_an_endorsement_key_is_written_to_a_csr() -> None:
    """docs/protocol.md said that the signer writes one."""
    fixture = ReconcilerFixture()
    for csr in (fixture.scenario.offer_csr(), fixture.scenario.answer_csr()):
        fixture.result(fixture.file(csr))
    issued = ["Approved Attested", "certify"]
    assert fixture.csrs.writes == [f"annotate {CHALLENGE_ANNOTATION}", *issued]
    protocol = raw("docs/protocol.md")
    [row] = re.findall(r"^\| endorsement key record \| (.+) \|$", protocol, re.MULTILINE)
    assert row.startswith(
        f"annotation `{ENDORSEMENT_KEY_ANNOTATION}` on the Machine or its infrastructure object;"
    )


def test_endorsement_key_prints_the_public_key_and_no_certificate() -> None:
    """README.md said that it prints a certificate. The whole output is a valid annotation."""
    issuer = authority("A Vendor Root CA")
    public = issuer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    digest = "ab" * 32
    document = {"publicKey": public.decode(), "sha256": digest, "certificates": ["a certificate"]}
    text = format_text(document)
    assert "certificate" not in text
    registered = read_key_annotation(text, "Machine").keys
    assert registered[0].spki_sha256.hex() == digest
    statement = "`kubelet-authenticator-tpm endorsement-key` prints the public key"
    assert statement in prose("README.md")


def test_binding_of_any_name_is_deleted_only_by_the_removing_policies() -> None:
    """What opting in does to kubelets that rotate their certificates today: docs/migration.md."""
    removed: list[str] = []
    for mode in AutoApproveBindings:
        policy = replace(Policy(name="test"), auto_approve_bindings=mode)
        outbox = Outbox("binding not removed", "binding", lambda: 0.0)
        enforce_auto_approve_policy(HOME, [mode.value], policy, removed.append, outbox)
    assert set(removed) == {"Remove", "RemoveWhenAttested"}
    [row] = re.findall(r"^\| the bindings \|.+$", raw("docs/migration.md"), re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    after = (
        "stay, with an alarm, until the nodes from before the opt-in have attested; then deleted"
    )
    assert cells[1:] == [after, "the signer deletes them", *["stay; logged as alarm"] * 2]


def test_outage_that_every_node_survives_is_a_fifth_of_the_lifetime() -> None:
    """docs/protocol.md promised a weekend with the default of seven days."""
    rows = re.findall(
        r"^\| `(\d+)h`[^|]* \| [^|]+ \| ([\d.]+) (minutes|hours|days)",
        raw("docs/operate/certificates.md"),
        re.MULTILINE,
    )
    default = Policy(name="test").certificate.lifetime / timedelta(hours=1)
    assert f"{default:.0f}" in {lifetime for lifetime, *_ in rows}
    assert len(rows) == 5
    for lifetime, survives, unit in rows:
        left = timedelta(hours=int(lifetime)) * (1 - RENEWAL_FRACTION)
        assert abs(timedelta(**{unit: float(survives)}) - left) < timedelta(seconds=1)
    assert pytest.approx(0.1) == RENEWAL_SPREAD


def test_rotation_of_the_challenge_keys_has_the_times_of_the_documentation() -> None:
    days, minutes = ROTATION_PERIOD.days, PREVIOUS_KEY_TTL // timedelta(minutes=1)
    statement = f"a new key after {days} days, and accepts the previous one for another {minutes}"
    assert statement in prose("docs/operate/signer.md")


def test_every_file_written_by_hand_exists() -> None:
    files = re.findall(
        r"`((?:authenticator|common|signer)/[\w/.]+)`", raw("docs/written-by-hand.md")
    )
    assert len(files) > 10
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_versions_are_those_of_the_tests() -> None:
    text = raw("docs/versions.md")
    [versions] = re.findall(r"^VERSIONS := (.+)$", raw("Makefile"), re.MULTILINE)
    assert f"| {', '.join(versions.split())} (`make test-versions`) |" in text
    [oldest] = re.findall(r"^OLDEST_CLUSTER_API := (.+)$", raw("Makefile"), re.MULTILINE)
    pinned = {pins.read(file).cluster_api for file in pins.CLUSTER_API.glob("*.mod")}
    newest, *older = sorted(pinned, key=pins.parse, reverse=True)
    assert (newest, older[-1]) == (pins.cluster_api().cluster_api, oldest)
    assert f"| {newest}; {', '.join(older)} (`make test-cluster-api`) |" in text
    [python] = re.findall(r'requires-python = ">=(.+)"', raw("pyproject.toml"))
    assert f"| {python} or newer |" in text
    assert f"python3 (>= {python})" in raw("packaging/node/package/nfpm.yaml")
    [built] = re.findall(r"^pythons=\((.*)\)$", raw("packaging/node/package/tree.sh"), re.MULTILINE)
    first, *_, last = built.split()
    assert f"| Python on nodes | {first} to {last}, or " in text
    assert first == python


def test_permissions_file_does_not_ask_to_replace_the_secret_of_cluster_api() -> None:
    """It did, and Cluster API's own controllers connect with that Secret."""
    text = (PACKAGING / "workload-rbac.yaml").read_text(encoding="utf-8")
    comment = text.split("apiVersion", 1)[0].replace("\n#", "")
    assert "do not replace it" in comment


def public_bundle(*owners: tuple[str, Issuer]) -> str:
    """Return authorities in the format of loicsikidi/tpm-ca-certificates.

    Source: docs/specifications/04-tpm-trust-bundle-format.md of that project.
    """
    parts = ["##\n## tpm-ca-certificates.pem\n##\n## Date: 2025-12-03\n##\n\n"]
    for owner, issuer in owners:
        pem = issuer.certificate.public_bytes(Encoding.PEM).decode()
        parts.append(
            f"#\n# Certificate: {owner} Root\n# Owner: {owner}\n#\n# Issuer: CN=X\n{pem}\n"
        )
    return "".join(parts)


def roots(path: Path) -> list[bytes]:
    policy = Policy(
        name="test",
        endorsement_key=EndorsementKeyRules(
            trust=TrustMode.CERTIFIED, certificate_authorities=(str(path),)
        ),
    )
    return [root.fields.der for root in load_trust_bundle(policy).roots]


def test_public_bundle_of_vendors_roots_loads_as_it_is(tmp_path: Path) -> None:
    one, other = authority("One Root CA"), authority("Other Root CA")
    bundle = tmp_path / "tpm-ca-certificates.pem"
    bundle.write_text(public_bundle(("IFX", one), ("NTC", other)), encoding="utf-8")
    assert sorted(roots(bundle)) == sorted([one.der, other.der])


def test_roots_of_one_vendor_are_kept(tmp_path: Path) -> None:
    """With the command of docs/tpm-roots.md."""
    owners = ("NTC", "IFX", "STM", "IFX")
    issuers = [(owner, authority(f"{owner} {n} Root")) for n, owner in enumerate(owners)]
    bundle = tmp_path / "tpm-ca-certificates.pem"
    bundle.write_text(public_bundle(*issuers), encoding="utf-8")
    [block] = [block for block in blocks() if block.script.startswith("awk -v keep=IFX")]
    subprocess.run(
        ["bash", "-eu", "-c", block.script], cwd=tmp_path, env={"PATH": os.defpath}, check=True
    )
    assert sorted(roots(tmp_path / "ifx.pem")) == sorted(
        issuer.der for owner, issuer in issuers if owner == "IFX"
    )


def test_deployment_that_commands_name_is_shipped() -> None:
    """Commands named a Deployment when none was shipped."""
    manifests = list(yaml.safe_load_all(raw("packaging/signer/manifests/install.yaml")))
    [deployment] = [each for each in manifests if each["kind"] == "Deployment"]
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    scripts = "".join(block.script for block in blocks())
    named = set(re.findall(r"deployment/([\w-]+)", scripts))
    assert named == {name}
    assert set(re.findall(r"(?:-n|--namespace) (node-[\w-]+)", scripts)) == {namespace}
    for key, value in re.findall(r"-l ([\w./-]+)=([\w-]+)", scripts):
        assert labels[key] == value


@pytest.mark.parametrize("command", ["endorsement-key", "join"])
def test_quick_start_passes_the_settings_of_the_node(command: str) -> None:
    """Without them the commands failed on real nodes: only units read /etc/default."""
    program = f"kubelet-authenticator-tpm {command} "
    page = [block for block in blocks() if block.page == "docs/quick-start.md"]
    lines = [line for block in page for line in block.text.splitlines()]
    [printed] = [line for line in lines if line.startswith(program)]
    assert printed.startswith(f"{program}$KUBELET_AUTHENTICATOR_JOIN_ARGS")


@pytest.mark.parametrize("file", ["install.yaml", "addon-components.yaml"])
def test_each_installation_creates_the_first_policy(file: str) -> None:
    assert "which Helm, `install.yaml` and clusterctl set" in prose("docs/policies.md")
    manifests = (PACKAGING / "manifests" / file).read_text(encoding="utf-8")
    assert "- --create-default-policy" in manifests


def test_guide_to_migration_needs_no_restart_of_the_signer() -> None:
    """It asked for one, though a signer reads changed policies and writes this line."""
    guide = prose("docs/migration.md")
    assert "restart it now" not in guide
    assert "must have a new line `policies in force`" in guide
    assert 'info("policies in force"' in raw("signer/controller/policies/active.py")


@pytest.mark.parametrize(
    ("kind", "file"), [("AttestedNodes", "attestednodes"), ("EndorsementKeys", "endorsementkeys")]
)
def test_wide_output_shows_what_the_documentation_says(kind: str, file: str) -> None:
    """It said that both kinds show digests and provider IDs."""
    [version] = yaml.safe_load(raw(f"packaging/signer/crds/{file}.yaml"))["spec"]["versions"]
    columns = [c["name"] for c in version["additionalPrinterColumns"] if c.get("priority")]
    [shown] = re.findall(
        rf"{kind} (?:also )?show ([\w ,]+)[;.]", prose("docs/operate/monitoring.md")
    )
    assert re.split(", | and ", shown) == [
        name.lower().replace("provider id", "provider ID") for name in columns
    ]
