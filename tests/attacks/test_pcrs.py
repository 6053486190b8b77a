"""PCR values that were not quoted, and quotes of other PCRs than the requested ones.

The answer holds the values unsigned; the TPM signs a digest of them. A verifier that does not
compare the selection accepts values of PCRs that the quote does not cover (go-attestation
CVE-2022-0317), or an empty quote (tpm2-tools CVE-2024-29039). Here the attacker has booted other
code, and its TPM works correctly. The attacker chooses what to quote and which values to send
(Q3, Q4).
"""

import hashlib
from collections.abc import Callable

import pytest

from common.tpm.constants import TPM_ALG_SHA256, TPM_ALG_SHA384
from signer.errors import (
    PcrBankUnavailable,
    PcrDigestMismatch,
    PcrPolicyMismatch,
    PcrSelectionMismatch,
)
from signer.kinds.csr import Csr
from signer.policy.policy import PcrMode, PcrValues, PcrVariant
from tests.attacks.keys import ANSWER
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused, attacks
from tests.attacks.scenarios import p384_scenario
from tests.builders.scenario import Scenario, key_name
from tests.builders.software_tpm import Pcrs, attest, pcr_values

EIGHT = {"sha256": tuple(range(8))}
TWO_BANKS = {"sha256": (0, 7), "sha384": (0, 7)}
GOOD = pcr_values(EIGHT)
EVIL = pcr_values(EIGHT, b"evil")


def only(values: Pcrs) -> PcrValues:
    """Allow exactly these values."""
    return {b: {i: frozenset({v}) for i, v in of.items()} for b, of in values.items()}


def enforcing(variants: tuple[PcrVariant, ...] = ()) -> Callable[[], Scenario]:
    """Allow the values of the node, and other values for other Machines."""

    def make() -> Scenario:
        scenario = Scenario()
        scenario.change_policy("pcrs", mode=PcrMode.ENFORCE, allowed=ALLOWED, variants=variants)
        return scenario

    return make


def two_banks() -> Scenario:
    """Request PCRs of two banks."""
    scenario = Scenario()
    scenario.change_policy("pcrs", selection=TWO_BANKS)
    scenario.pcrs = pcr_values(TWO_BANKS)
    return scenario


def of_pool(pool: str | None) -> PcrVariant:
    """Allow other values for the Machines of a pool, or for all."""
    labels = {} if pool is None else {"pool": pool}
    return PcrVariant(match_labels=labels, allowed=only(EVIL))


ALLOWED = only(GOOD)
ENFORCING = enforcing()
OTHER_POOL = enforcing((of_pool("gpu"),))


def answer(scenario: Scenario, quoted: Pcrs, sent: Pcrs, digest: int = TPM_ALG_SHA256) -> Csr:
    """Answer with a quote of some PCRs and the values of others."""
    statement = attest(quoted, scenario.extra_data(ANSWER), digest)
    return scenario.answer_csr(scenario.answer(statement, pcrs=sent))


def quoting(quoted: Pcrs, sent: Pcrs | None = None) -> Mutation:
    """Quote PCRs that were not requested, and send their values or others."""
    return lambda scenario: answer(scenario, quoted, quoted if sent is None else sent)


def evil(index: int) -> Pcrs:
    """Boot other code, which changes one PCR."""
    return {"sha256": {**GOOD["sha256"], index: EVIL["sha256"][index]}}


def reversed_banks(scenario: Scenario) -> Csr:
    """Digest the banks in the wrong order."""
    values = [scenario.pcrs[bank][i] for bank in ("sha384", "sha256") for i in (0, 7)]
    digest = hashlib.sha256(b"".join(values)).digest()
    return scenario.answer_csr(scenario.answer(scenario.attest(pcr_digest=digest)))


def digest_of_bank(scenario: Scenario) -> Csr:
    """Digest with the hash of the bank instead of that of the signature."""
    return answer(scenario, scenario.pcrs, scenario.pcrs, TPM_ALG_SHA256)


def digest_of_sha384(scenario: Scenario) -> Csr:
    """Digest with another hash than that of the signature."""
    return answer(scenario, scenario.pcrs, scenario.pcrs, TPM_ALG_SHA384)


def values_alone(scenario: Scenario) -> Csr:
    """Quote the real values, and send the allowed ones."""
    return answer(scenario, EVIL, GOOD)


def moved(scenario: Scenario) -> Csr:
    """Send the good values, each for the next PCR."""
    sent = {"sha256": {i: GOOD["sha256"][(i + 1) % 8] for i in range(8)}}
    return answer(scenario, sent, sent)


def policy_of_yesterday(scenario: Scenario) -> Csr:
    """Answer the challenge of a policy that has changed since."""
    csr = scenario.answer_csr()
    scenario.change_policy("pcrs", selection={"sha256": (*range(8), 11)})
    return csr


def other_machines_values(scenario: Scenario) -> Csr:
    """Boot the code of another Machine."""
    return answer(scenario, EVIL, EVIL)


def allowing(allowed: PcrValues, variants: tuple[PcrVariant, ...] = ()) -> Mutation:
    """Use a policy that allows other values."""

    def mutate(scenario: Scenario) -> Csr:
        csr = scenario.answer_csr()
        scenario.change_policy("pcrs", allowed=allowed, variants=variants)
        return csr

    return mutate


def expired(scenario: Scenario) -> Csr:
    """Use a policy under which a good value has ended."""
    scenario.change_policy("pcrs", until={GOOD["sha256"][4]: scenario.now})
    return scenario.answer_csr()


def of_no_machine(scenario: Scenario) -> Csr:
    """Boot other code, and name no Machine: the values are checked first."""
    scenario.store.machines.clear()
    return answer(scenario, EVIL, EVIL)


def with_three_faults(scenario: Scenario) -> Csr:
    """Boot other code, with a TPM that is banned, in a Cluster that is paused."""
    scenario.change_cluster(paused=True)
    scenario.put_key(key_name(scenario.ek), banned=True)
    return answer(scenario, EVIL, EVIL)


def no_selection(scenario: Scenario) -> Csr:
    """Use a policy that selects no PCR: it allows nothing."""
    scenario.change_policy("pcrs", selection={})
    return answer(scenario, {}, {"sha256": {}})


SELECTIONS = [
    *attacks(
        {
            PcrSelectionMismatch: {
                "values that the quote does not cover (CVE-2022-0317)": quoting(
                    pcr_values({"sha256": (0, 1)}), GOOD
                ),
                "a quote of another bank, values of ours": quoting(
                    pcr_values({"sha384": tuple(range(8))}), GOOD
                ),
                "an empty quote, values of ours": quoting({}, GOOD),
                "PCR 7 left out": quoting(pcr_values({"sha256": tuple(range(7))})),
                "PCR 23 for PCR 7": quoting(pcr_values({"sha256": (0, 1, 2, 3, 4, 5, 6, 23)})),
                "the debug PCR in addition": quoting(pcr_values({"sha256": (*range(8), 16)})),
                "every PCR": quoting(pcr_values({"sha256": tuple(range(24))})),
                "one PCR (CVE-2024-29039)": quoting(pcr_values({"sha256": (16,)})),
                "the SHA-1 bank": quoting(pcr_values({"sha1": tuple(range(8))})),
                "the SHA-384 bank": quoting(pcr_values({"sha384": tuple(range(8))})),
                "the SHA-1 bank in addition": quoting(pcr_values({"sha1": (0,), **EIGHT})),
                "another bank in addition, empty": quoting({**GOOD, "sha384": {}}),
                "a value less": quoting(GOOD, {"sha256": {i: GOOD["sha256"][i] for i in range(7)}}),
                "a value more": quoting(GOOD, pcr_values({"sha256": (*range(8), 16)})),
                "values of another bank in addition": quoting(
                    GOOD, {**GOOD, "sha384": {0: bytes(48)}}
                ),
                "policy of yesterday": policy_of_yesterday,
                "a policy that selects nothing": no_selection,
            },
            PcrBankUnavailable: {"an empty bank": quoting({"sha256": {}}, GOOD)},
        }
    ),
    Attack(
        "one of two banks empty",
        PcrBankUnavailable,
        lambda scenario: answer(scenario, {**scenario.pcrs, "sha384": {}}, scenario.pcrs),
        two_banks,
    ),
]
DIGESTS = [
    *attacks(
        {
            PcrDigestMismatch: {
                **{f"another value of PCR {i}": quoting(GOOD, evil(i)) for i in range(8)},
                "values in the wrong places": lambda w: answer(
                    w, GOOD, {"sha256": {i: GOOD["sha256"][7 - i] for i in range(8)}}
                ),
                "zeros for values": quoting(GOOD, {"sha256": dict.fromkeys(range(8), bytes(32))}),
                "digest of another hash": digest_of_sha384,
            },
        }
    ),
    Attack("the policy's values with an honest quote", PcrDigestMismatch, values_alone, ENFORCING),
    Attack("banks in the wrong order", PcrDigestMismatch, reversed_banks, two_banks),
    Attack("digest of the bank's hash", PcrDigestMismatch, digest_of_bank, p384_scenario),
]
POLICIES = [
    *attacks(
        {
            PcrPolicyMismatch: {
                **{f"PCR {i} of something else booted": quoting(evil(i)) for i in range(8)},
                "all of something else booted": quoting(EVIL),
                "good values in other places": moved,
                "PCRs that were never extended": quoting(
                    {"sha256": dict.fromkeys(range(8), bytes(32))}
                ),
                "a policy that allows nothing": allowing({}),
                "a bank without allowed values": allowing({"sha384": ALLOWED["sha256"]}),
                "a PCR without allowed values": allowing(
                    {"sha256": {i: ALLOWED["sha256"][i] for i in range(7)}}
                ),
                "an empty set of allowed values": allowing(
                    {"sha256": {**ALLOWED["sha256"], 0: frozenset()}}
                ),
                "general values, where the Machine has its own": allowing(
                    ALLOWED, (of_pool("workers"),)
                ),
                "values of a later variant": allowing(
                    ALLOWED,
                    (
                        of_pool("workers"),
                        PcrVariant(match_labels={"pool": "workers"}, allowed=ALLOWED),
                    ),
                ),
                "a variant for all Machines": allowing(ALLOWED, (of_pool(None),)),
                "something else booted for no Machine": of_no_machine,
                "something else booted, and two more faults": with_three_faults,
            },
        },
        scenario=ENFORCING,
    ),
    Attack(
        "values that another Machine may have", PcrPolicyMismatch, other_machines_values, OTHER_POOL
    ),
    Attack(
        "a value that has ended",
        PcrPolicyMismatch,
        expired,
        ENFORCING,
        says=f"sha256:4 is {GOOD['sha256'][4].hex()}, allowed no listed value",
    ),
]
ATTACKS = SELECTIONS + DIGESTS + POLICIES


@pytest.mark.parametrize("scenario", [Scenario, ENFORCING, two_banks, p384_scenario])
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
