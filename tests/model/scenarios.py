"""The worlds that are explored. Each is as small as the question that it answers.

Keys are named after their TPMs: T1 and T4 are in `n`, T3 is in the `n` of the other cluster, T2 is
in the node on which the attacker is root, and T9 is in a machine that the attacker owns. `soft`
keys are in no TPM. In the modes that need records, operators register what the scenario says. In
the modes with names, certificates or quotes of the TPMs say the same instead, and those of other
TPMs name other machines; those of a `plain` key name none.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from tests.model.messages import Place
from tests.model.modes import Mode
from tests.model.world import TOKEN, Host, Made, Scenario, World

N = Place("a", "n", "p1")
M = Place("a", "m", "p2")
OTHER_N = Place("b", "n", "p1")
"""The same name and provider ID, in another cluster."""
OTHER_M = Place("b", "n", "p2")
"""The same name in another cluster, on other hardware."""
NEW_N = Place("a", "n", "p3")
"""A new Machine under an old node name."""
NEXT = Place("a", "r", "p1")
"""The next Machine on the hardware of `n`, under another node name."""
RENAMED = Place("a", "m2", "p2")
"""Another name of `m`."""

Records = frozenset[tuple[str, Place]]
Scenarios = Callable[[Mode], Scenario]


def made(place: Place, *more_names: str) -> Made:
    """Return the Machine of a node."""
    body = f"{place.name}-{place.provider_id}"
    names = (place.name, *more_names)
    return Made(body, place.cluster, place.provider_id, names, uid=f"{body}, made once")


def machines(*places: Place) -> frozenset[Made]:
    """Return the Machines of these nodes."""
    return frozenset(map(made, places))


def registered(mode: Mode, *records: tuple[str, Place]) -> Records:
    """Register keys for Machines if the mode needs records."""
    return frozenset(records if mode.needs_record else ())


def named(make: Scenarios) -> Scenarios:
    """Let the platform name the Machines for which operators register keys in other modes."""

    def scenario(mode: Mode) -> Scenario:
        made = make(mode)
        if not mode.has_names or made.names:
            return made
        of_records = make(Mode.REGISTERED_AND_CERTIFIED)
        records = [*of_records.registered, *(it for w in of_records.worlds for it in w.records)]
        return replace(
            of_records,
            worlds=tuple(replace(world, records=frozenset()) for world in of_records.worlds),
            registered=(),
            names=frozenset(records),
        )

    return scenario


def join(mode: Mode, *, attacker_key: str) -> Scenario:
    """Let a node join with a token that the attacker also has. Its record may come late."""
    before = World(machines=machines(N))
    records = registered(mode, ("T1", N))
    after = World(done="registers T1 for n", machines=machines(N), records=records)
    return Scenario(
        worlds=(before, after) if mode.needs_record else (before,),
        hosts=(Host(place=N, key="T1"),),
        attacker_keys=(attacker_key,),
        attacker_requesters=(TOKEN, "node:m"),
        targets=(N,),
    )


def join_without_name(mode: Mode) -> Scenario:
    """Do the same, where the platform does not name the machine of the attacker's TPM."""
    scenario = named(partial(join, attacker_key="T9"))(mode)
    return replace(scenario, attacker_keys=("plain",), replicas=1) if mode.has_names else scenario


def neighbor(mode: Mode) -> Scenario:
    """Give each Machine its own token. The attacker is root on `m` and wants `n`."""
    records = registered(mode, ("T1", N), ("T2", M))
    return Scenario(
        worlds=(World(machines=machines(N, M), records=records),),
        hosts=(Host(place=N, key="T1", token="of-p1"),),
        attacker_keys=("T2",),
        attacker_requesters=("of-p2", "node:m"),
        targets=(N, M),
        own_tokens=True,
        replicas=1,
    )


def annotations_written(mode: Mode) -> Scenario:
    """Let the attacker also write what the node reads, and delete its requests."""
    return replace(neighbor(mode), writes_csrs=True)


def two_clusters(mode: Mode) -> Scenario:
    """Let equal nodes of two clusters join with equal tokens."""
    records = registered(mode, ("T1", N), ("T3", OTHER_N))
    return Scenario(
        worlds=(World(machines=machines(N, OTHER_N), records=records),),
        hosts=(Host(place=N, key="T1"), Host(place=OTHER_N, key="T3")),
        attacker_keys=("T9",),
        targets=(N, OTHER_N),
        replicas=1,
    )


def one_key(mode: Mode, *, hold: bool = False, sweeper: bool = False) -> Scenario:
    """Let the attacker use one TPM for two nodes. Records, if any, name it for both."""
    records = registered(mode, ("T2", M), ("T2", OTHER_N))
    leaving = made(M)._replace(is_deleting=True)
    return Scenario(
        worlds=(
            World(machines=machines(M, OTHER_N), records=records),
            World(
                done="deletes m, which drains",
                machines=machines(OTHER_N) | {leaving},
                records=records,
            ),
            World(done="removes m", machines=machines(OTHER_N), records=records),
        ),
        attacker_keys=("T2",),
        targets=(M, OTHER_N),
        hold=hold,
        sweeper=sweeper,
        filed_at_once=2,
        replicas=1 if sweeper or hold else 2,
    )


def move(
    machine: Place, *more_names: str, other: Place = OTHER_N
) -> Callable[[Records], tuple[World, ...]]:
    """Let `clusterctl move` bring the Cluster `a` to another management cluster."""
    here, others = frozenset({made(machine, *more_names)}), machines(other)
    there = frozenset(each._replace(uid=f"{each.body}, moved") for each in here)

    def worlds(records: Records) -> tuple[World, ...]:
        first = World(machines=here | others, records=records)
        moving = World(
            done="moves a, without its Machines yet",
            machines=others,
            away=here,
            paused=frozenset({"a"}),
            records=records,
        )
        return first, moving, replace(first, done="moves its Machines", machines=there | others)

    return worlds


def moved(mode: Mode) -> Scenario:
    """Let a Cluster move. The attacker is root on a node of it that has two names.

    Its kubelet does not run, and it uses its TPM in another Cluster, too.
    """
    records = registered(mode, ("T2", M), ("T2", RENAMED), ("T2", OTHER_N))
    return Scenario(
        worlds=move(M, RENAMED.name)(records),
        attacker_keys=("T2",),
        targets=(M, RENAMED, OTHER_N),
        attacker_joins=False,
        filed_at_once=2,
        replicas=1,
    )


def moved_node(mode: Mode) -> Scenario:
    """Let a Cluster with an honest node move."""
    return Scenario(
        worlds=move(N, other=OTHER_M)(registered(mode, ("T1", N), ("T9", OTHER_M))),
        hosts=(Host(place=N, key="T1", token="of-p1"),),
        attacker_keys=("T9",),
        attacker_requesters=("of-p2", "node:n"),
        targets=(N, OTHER_M),
        own_tokens=True,
        replicas=1,
    )


def pool(_: Mode) -> Scenario:
    """Let a MachinePool's member get a Machine. The attacker, root on it, has another Machine."""
    member = made(M)._replace(is_pool_member=True)
    return Scenario(
        worlds=(
            World(machines=machines(OTHER_N) | {member}),
            World(done="makes a Machine for the member", machines=machines(M, OTHER_N)),
        ),
        attacker_keys=("T2",),
        targets=(M, OTHER_N),
        registered=(("T2", M), ("T2", OTHER_N)),
    )


def restored(mode: Mode) -> Scenario:
    """Restore a backup of the claims that is older than all of them."""
    before = neighbor(mode).worlds[0]
    return replace(
        neighbor(mode),
        worlds=(before, replace(before, done="restores the claims", restores=True)),
    )


def two_keys(mode: Mode, *, keys: tuple[str, str], registered_keys: int) -> Scenario:
    """Let the attacker use two keys for two nodes: two of one TPM, or two without a TPM."""
    pairs = list(zip(keys, (M, OTHER_N), strict=True))[:registered_keys]
    records = registered(mode, *pairs)
    return Scenario(
        worlds=(World(machines=machines(M, OTHER_N), records=records),),
        attacker_keys=keys,
        targets=(M, OTHER_N),
        filed_at_once=2,
        replicas=1,
    )


def new_machine(mode: Mode, *, hold: bool = False, sweeper: bool = False) -> Scenario:
    """Make a new Machine under an old node name. The attacker is root on the old one."""
    records = registered(mode, ("T1", N), ("T4", NEW_N))
    return Scenario(
        worlds=(
            World(machines=machines(N), records=records),
            World(done="deletes n", machines=machines(), records=records),
            World(done="makes n again", machines=machines(NEW_N), records=records),
        ),
        hosts=(Host(place=NEW_N, key="T4", token="of-p3"),),
        attacker_keys=("T1",),
        attacker_requesters=("of-p1",),
        targets=(N, NEW_N),
        own_tokens=True,
        hold=hold,
        sweeper=sweeper,
        replicas=1 if sweeper or hold else 2,
    )


def same_hardware(mode: Mode, *, hold: bool = False) -> Scenario:
    """Replace a Machine on its hardware: same provider ID and TPM, another node name."""
    records = registered(mode, ("T1", N), ("T1", NEXT))
    return Scenario(
        worlds=(
            World(machines=machines(N), records=records),
            World(done="deletes n", machines=machines(), records=records),
            World(done="makes r on its hardware", machines=machines(NEXT), records=records),
        ),
        hosts=(
            Host(place=N, key="T1", token="of-p1"),
            Host(place=NEXT, key="T1", token="of-p1", since=2),
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
    both, released = machines(M, OTHER_N), frozenset({("T2", "a")})
    return Scenario(
        worlds=(
            World(machines=machines(M), records=former),
            World(done="gives the hardware of m to b", machines=both, records=records),
            World(done="releases T2 from a", machines=both, records=records, released=released),
        ),
        hosts=(
            Host(place=M, key="T2", token="of-p2"),
            Host(place=OTHER_N, key="T2", token="of-p1", since=2),
        ),
        attacker_keys=("T9",),
        attacker_requesters=("of-p2", "node:m"),
        targets=(OTHER_N,),
        own_tokens=True,
        replicas=1,
    )


def tpm_replaced(mode: Mode, *, ban: bool) -> Scenario:
    """Replace the TPM of a Machine. The attacker has the old one; it is banned last or never."""
    old, new = registered(mode, ("T1", N)), frozenset({("T4", N)})
    done = "registers T4, the new TPM, instead of T1"
    worlds = [
        World(machines=machines(N), records=old),
        World(done=done, machines=machines(N), records=new),
    ]
    if ban:
        worlds.append(replace(worlds[1], done="bans T1", banned=frozenset({"T1"})))
    return Scenario(
        worlds=tuple(worlds),
        hosts=(Host(place=N, key="T4", token="of-p1", since=len(worlds) - 1),),
        attacker_keys=("T1",),
        attacker_requesters=("of-p1",),
        targets=(N,),
        former_keys=("T1",),
        own_tokens=True,
        replicas=1,
    )


def name_won_back(mode: Mode) -> Scenario:
    """Register the right TPM after the attacker may already have claimed the name.

    Where a platform names machines, the attacker's TPM is named for this one.
    """
    before = World(machines=machines(N), records=registered(mode))
    after = replace(before, done="registers T1 for n", records=frozenset({("T1", N)}))
    return Scenario(
        worlds=(before, after),
        hosts=(Host(place=N, key="T1", since=1),),
        attacker_keys=("T9",),
        names=frozenset({("T9", N)} if mode.has_names else ()),
        targets=(N,),
        former_keys=("T9",),
        replicas=1,
    )


_SCENARIOS: Mapping[str, Scenarios] = {
    "stolen token": lambda mode: join(mode, attacker_key="T9"),
    "stolen token, no name": join_without_name,
    "stolen token, no TPM": lambda mode: join(mode, attacker_key="soft-1"),
    "annotations written": annotations_written,
    "own tokens": neighbor,
    "two clusters": two_clusters,
    "one key": one_key,
    "one key, claims held": lambda mode: one_key(mode, hold=True),
    "one key, claims swept": lambda mode: one_key(mode, sweeper=True),
    "two keys": lambda mode: two_keys(mode, keys=("T2", "T2-ecc"), registered_keys=1),
    "two keys, no TPM": lambda mode: two_keys(mode, keys=("soft-1", "soft-2"), registered_keys=2),
    "new Machine": new_machine,
    "new Machine, claims held": lambda mode: new_machine(mode, hold=True),
    "new Machine, claims swept": lambda mode: new_machine(mode, sweeper=True),
    "same hardware": same_hardware,
    "same hardware, claims held": lambda mode: same_hardware(mode, hold=True),
    "hardware passed on": hardware_passed_on,
    "TPM replaced": lambda mode: tpm_replaced(mode, ban=True),
    "TPM replaced, no ban": lambda mode: tpm_replaced(mode, ban=False),
    "name won back": name_won_back,
    "moved": moved,
    "moved node": moved_node,
    "pool": pool,
    "claims restored": restored,
}
SCENARIOS: Mapping[str, Scenarios] = {name: named(make) for name, make in _SCENARIOS.items()}
