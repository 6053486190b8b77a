"""Q3 and Q4 on real parts: PCR values in a policy, and a bank that a TPM does not have."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from authenticator.tpm.attestation import TpmAttestor
from authenticator.tpm.open_tpm import open_tpm
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.integration import csrs
from tests.integration.scripted_node import Script
from tests.integration.tpms import seconds

BANKS = ("sha256", "sha384")
SELECTED = (0, 4, 7)
Boots = tuple[SoftwareTpm, SoftwareTpm]


def enforced(bank: str, *tpms: SoftwareTpm) -> Mapping[str, Any]:
    """Return a policy's `pcrs` that accept the values of these TPMs, in one bank."""
    values = {
        str(index): sorted({tpm.pcrs[bank][index].hex() for tpm in tpms}) for index in SELECTED
    }
    return {"mode": "Enforce", "selection": {bank: list(SELECTED)}, "allowed": {bank: values}}


@pytest.fixture(scope="module")
def boots(vendor: TrustDomain) -> Iterator[Boots]:
    """Boot two TPMs into different systems."""
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(SoftwareTpm(vendor, seed=f"boot {number}", banks=BANKS))
            for number in range(2)
        )
        yield first, second


@pytest.fixture(scope="module", autouse=True)
def enforcing(signer: Signer, fleet: Fleet, boots: Boots) -> Iterator[Signer]:
    """Allow both boots in one cluster, and only the first in the other, by SHA-384."""
    specs = (
        of_cluster(fleet.first, pcrs=enforced("sha256", *boots)),
        of_cluster(fleet.second, pcrs=enforced("sha384", boots[0])),
    )
    with signer.with_policies(*specs) as running:
        yield running


def shown_events(fleet: Fleet) -> set[tuple[str, str]]:
    """Return reason and object of each Event about CSRs of the first cluster."""
    events = fleet.first.workload.admin.list("/api/v1/namespaces/default/events")
    return {(event["reason"], event["involvedObject"]["name"]) for event in events}


def test_mode_warn_issues_the_certificate_with_an_alarm(
    machines: Machines, fleet: Fleet, boots: Boots, enforcing: Signer
) -> None:
    pcrs = {**enforced("sha256", *boots), "mode": "Warn"}
    with enforcing.with_policies(of_cluster(fleet.first, pcrs=pcrs)) as warning:
        script, name = Script(machines.registered()), csrs.new_name()
        assert script.file(name, script.answer(name)) == {"Approved": "Attested"}
        wait_until(lambda: len(warning.verdicts(name)) == 2, what="both lines of the log")
        alarm, issued = warning.verdicts(name)
        reasons = {("PcrPolicyMismatch", name)}
        wait_until(lambda: reasons <= shown_events(fleet), what="the Event")
        assert (alarm["level"], alarm["reason"]) == ("warning", "PcrPolicyMismatch")
        assert issued["alarms"] == ["PcrPolicyMismatch"]


def test_each_cluster_has_its_own_values(machines: Machines, fleet: Fleet, boots: Boots) -> None:
    """The banks differ too: one cluster does not accept the other's bank."""
    for tpm, ended in zip(
        boots, ({"Approved": "Attested"}, {"Denied": "PcrPolicyMismatch"}), strict=True
    ):
        node = machines.power_on(fleet.second, tpm=tpm)
        machines.register(node)
        script = Script(node)
        assert dict(script.challenge().pcrs) == {"sha384": SELECTED}
        assert script.attest() == ended
        machines.forget(node)


def test_node_reports_a_missing_bank(machines: Machines, fleet: Fleet) -> None:
    call = machines.registered(fleet.second).call()
    assert call.status == 2
    assert "PcrBankNotAllocated" in call.complaint
    assert "sha384" in call.complaint


def test_quote_of_a_missing_bank_is_refused(machines: Machines, fleet: Fleet) -> None:
    """Q3: the TPM signs a quote that contains no value, and no value is never a good value."""
    script, name = Script(machines.registered(fleet.second)), csrs.new_name()
    selection, extra_data = script.challenge().pcrs, script.extra_data(name)
    with open_tpm(script.node.tpm.tcti, deadline=seconds()) as tpm:
        assert isinstance(tpm, TpmAttestor)
        with tpm._own_attestation_key() as key:
            quoted = tpm._commands.quote(key, selection, extra_data)
    answer = script.reply(quote=quoted.attest, signature=quoted.signature)
    answer = replace(answer, pcrs={"sha384": {}})
    assert script.file(name, answer) == {"Denied": "PcrBankUnavailable"}
