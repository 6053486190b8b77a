"""The worlds that are explored. Each is as small as the question that it answers.

Keys are named after their TPMs: T1 and T4 are in `n`, T3 is in the `n` of the other cluster, T2 is
in the node on which the attacker is root, and T9 is in a machine that the attacker owns. `soft`
keys are in no TPM. In the modes that need records, operators register what the scenario says.
"""

from collections.abc import Callable, Mapping

from tests.model.messages import Place
from tests.model.rules import Mode
from tests.model.world import TOKEN, Host, Scenario, World

N = Place("a", "n", "p1")
M = Place("a", "m", "p2")
OTHER_N = Place("b", "n", "p1")
"""The same name and provider ID, in another cluster."""
NEW_N = Place("a", "n", "p3")
"""A new Machine under an old node name."""
NEXT = Place("a", "r", "p1")
"""The next Machine on the hardware of `n`, under another node name."""

Records = frozenset[tuple[str, Place]]


def registered(mode: Mode, *records: tuple[str, Place]) -> Records:
    """Register keys for Machines if the mode needs records."""
    return frozenset(records if mode.needs_record else ())


def join(mode: Mode, *, attacker_key: str) -> Scenario:
    """Let a node join with a token that the attacker also has. Its record may come late."""
    machines = frozenset({N})
    before = World(machines=machines)
    records = registered(mode, ("T1", N))
    after = World(done="registers T1 for n", machines=machines, records=records)
    return Scenario(
        worlds=(before, after) if mode.needs_record else (before,),
        hosts=(Host(place=N, key="T1"),),
        attacker_keys=(attacker_key,),
        attacker_requesters=(TOKEN, "node:m"),
        targets=(N,),
    )


def neighbor(mode: Mode) -> Scenario:
    """Give each Machine its own token. The attacker is root on `m` and wants `n`."""
    records = registered(mode, ("T1", N), ("T2", M))
    return Scenario(
        worlds=(World(machines=frozenset({N, M}), records=records),),
        hosts=(Host(place=N, key="T1", token="token of p1"),),
        attacker_keys=("T2",),
        attacker_requesters=("token of p2", "node:m"),
        targets=(N, M),
        own_tokens=True,
    )


def two_clusters(mode: Mode) -> Scenario:
    """Let equal nodes of two clusters join with equal tokens."""
    records = registered(mode, ("T1", N), ("T3", OTHER_N))
    return Scenario(
        worlds=(World(machines=frozenset({N, OTHER_N}), records=records),),
        hosts=(Host(place=N, key="T1"), Host(place=OTHER_N, key="T3")),
        attacker_keys=("T9",),
        targets=(N, OTHER_N),
        replicas=1,
    )


def one_key(mode: Mode, *, hold: bool = False, sweeper: bool = False) -> Scenario:
    """Let the attacker use one TPM for two nodes. Records, if any, name it for both."""
    records = registered(mode, ("T2", M), ("T2", OTHER_N))
    before = World(machines=frozenset({M, OTHER_N}), records=records)
    after = World(done="deletes m", machines=frozenset({OTHER_N}), records=records)
    return Scenario(
        worlds=(before, after),
        attacker_keys=("T2",),
        targets=(M, OTHER_N),
        hold=hold,
        sweeper=sweeper,
        filed_at_once=2,
        replicas=1 if sweeper else 2,
    )


def two_keys(mode: Mode, *, keys: tuple[str, str], registered_keys: int) -> Scenario:
    """Let the attacker use two keys for two nodes: two of one TPM, or two without a TPM."""
    pairs = list(zip(keys, (M, OTHER_N), strict=True))[:registered_keys]
    records = registered(mode, *pairs)
    return Scenario(
        worlds=(World(machines=frozenset({M, OTHER_N}), records=records),),
        attacker_keys=keys,
        targets=(M, OTHER_N),
        filed_at_once=2,
        replicas=1,
    )


def new_machine(mode: Mode, *, hold: bool) -> Scenario:
    """Make a new Machine under an old node name. The attacker is root on the old one."""
    records = registered(mode, ("T1", N), ("T4", NEW_N))
    return Scenario(
        worlds=(
            World(machines=frozenset({N}), records=records),
            World(done="deletes n", machines=frozenset(), records=records),
            World(done="makes n again", machines=frozenset({NEW_N}), records=records),
        ),
        hosts=(Host(place=NEW_N, key="T4", token="token of p3"),),
        attacker_keys=("T1",),
        attacker_requesters=("token of p1",),
        targets=(N, NEW_N),
        own_tokens=True,
        hold=hold,
    )


def same_hardware(mode: Mode, *, hold: bool = False) -> Scenario:
    """Replace a Machine on its hardware: same provider ID and TPM, another node name."""
    records = registered(mode, ("T1", N), ("T1", NEXT))
    return Scenario(
        worlds=(
            World(machines=frozenset({N}), records=records),
            World(done="deletes n", machines=frozenset(), records=records),
            World(done="makes r on its hardware", machines=frozenset({NEXT}), records=records),
        ),
        hosts=(
            Host(place=N, key="T1", token="token of p1"),
            Host(place=NEXT, key="T1", token="token of p1", since=2),
        ),
        attacker_keys=("T9",),
        attacker_requesters=("node:n",),
        targets=(NEXT,),
        own_tokens=True,
        hold=hold,
        replicas=1,
    )


def hardware_passed_on(mode: Mode) -> Scenario:
    """Give hardware to another Cluster. The former tenant keeps its Machine and its record."""
    former, records = registered(mode, ("T2", M)), registered(mode, ("T2", M), ("T2", OTHER_N))
    machines, released = frozenset({M, OTHER_N}), frozenset({("T2", "a")})
    return Scenario(
        worlds=(
            World(machines=frozenset({M}), records=former),
            World(done="gives the hardware of m to b", machines=machines, records=records),
            World(done="releases T2 from a", machines=machines, records=records, released=released),
        ),
        hosts=(
            Host(place=M, key="T2", token="token of p2"),
            Host(place=OTHER_N, key="T2", token="token of p1", since=2),
        ),
        attacker_keys=("T9",),
        attacker_requesters=("token of p2", "node:m"),
        targets=(OTHER_N,),
        own_tokens=True,
        replicas=1,
    )


def tpm_replaced(mode: Mode, *, ban: bool) -> Scenario:
    """Replace the TPM of a Machine. The attacker has the old one; it is banned last or never."""
    machines, banned = frozenset({N}), frozenset({"T1"})
    old, new = registered(mode, ("T1", N)), frozenset({("T4", N)})
    done = "registers T4, the new TPM, instead of T1"
    worlds = [
        World(machines=machines, records=old),
        World(done=done, machines=machines, records=new),
    ]
    if ban:
        worlds.append(World(done="bans T1", machines=machines, records=new, banned=banned))
    return Scenario(
        worlds=tuple(worlds),
        hosts=(Host(place=N, key="T4", token="token of p1", since=len(worlds) - 1),),
        attacker_keys=("T1",),
        attacker_requesters=("token of p1",),
        targets=(N,),
        former_keys=("T1",),
        own_tokens=True,
    )


def name_won_back(mode: Mode) -> Scenario:
    """Register the right TPM after the attacker may already have claimed the name."""
    machines = frozenset({N})
    after = World(done="registers T1 for n", machines=machines, records=frozenset({("T1", N)}))
    before = World(machines=machines, records=registered(mode))
    return Scenario(
        worlds=(before, after),
        hosts=(Host(place=N, key="T1", since=1),),
        attacker_keys=("T9",),
        targets=(N,),
        former_keys=("T9",),
    )


SCENARIOS: Mapping[str, Callable[[Mode], Scenario]] = {
    "stolen token": lambda mode: join(mode, attacker_key="T9"),
    "stolen token, no TPM": lambda mode: join(mode, attacker_key="soft-1"),
    "own tokens": neighbor,
    "two clusters": two_clusters,
    "one key": one_key,
    "one key, claims held": lambda mode: one_key(mode, hold=True),
    "one key, claims swept": lambda mode: one_key(mode, sweeper=True),
    "two keys": lambda mode: two_keys(mode, keys=("T2", "T2-ecc"), registered_keys=1),
    "two keys, no TPM": lambda mode: two_keys(mode, keys=("soft-1", "soft-2"), registered_keys=2),
    "new Machine": lambda mode: new_machine(mode, hold=False),
    "new Machine, claims held": lambda mode: new_machine(mode, hold=True),
    "same hardware": same_hardware,
    "same hardware, claims held": lambda mode: same_hardware(mode, hold=True),
    "hardware passed on": hardware_passed_on,
    "TPM replaced": lambda mode: tpm_replaced(mode, ban=True),
    "TPM replaced, no ban": lambda mode: tpm_replaced(mode, ban=False),
    "name won back": name_won_back,
}
