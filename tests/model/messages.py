"""Section 3 with symbols for bytes: a message is the tuple of what it binds.

The model assumes perfect cryptography. A secret is known only to the owner of the TPM that holds
both the endorsement key and the attestation key it was made for. Only its own TPM can make a quote.
Both can be copied. The model leaves out the uid of A and all ages: a challenge never expires and
every actor may ask for one, for any keys. So the attacker can do more here than in a real cluster.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from tests.model.rules import Rule

ATTACKER = "attacker"
OWN_NAME = "x"
"""The name of the attacker's objects."""
OFFER = "offer"
"""The name of the attacker's offer, used only where a broken rule lets an offer claim a name."""


class Place(NamedTuple):
    """What a request names: a cluster, a node name and a provider ID."""

    cluster: str
    name: str
    provider_id: str

    @property
    def node(self) -> tuple[str, str]:
        """Return the pair after which an AttestedNode is named."""
        return self.cluster, self.name


class Request(NamedTuple):
    """The PKCS#10 request: whose kubelet key, for which node name and provider ID."""

    made_by: str
    name: str
    provider_id: str


class Secret(NamedTuple):
    """The values from which a challenge's secret is derived."""

    cluster: str
    requester: str
    request: Request
    key: str
    """The endorsement key."""
    tpm: str
    """The attestation key. Each TPM derives one."""


class Quote(NamedTuple):
    """A quote by the attestation key of `tpm`; the other fields are its extraData."""

    tpm: str
    secret: Secret
    name: str
    request: Request


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A CSR B as the API server stores it. Each exists once in a model, and has a cheap hash."""

    name: str
    cluster: str
    requester: str
    request: Request
    key: str
    tpm: str
    quote: Quote
    annotation: str
    """The `tpm-endorsement-key` annotation, set by the creator of the object."""

    @property
    def made_by(self) -> str:
        """Return the owner of the key pair."""
        return self.request.made_by

    @property
    def place(self) -> Place:
        """Return the Machine that the request names, in the cluster where it was filed."""
        return Place(self.cluster, self.request.name, self.request.provider_id)

    @property
    def label(self) -> str:
        """Return the name in traces. All objects of the attacker share one name."""
        return f"{self.name} for {'/'.join(self.place)}"

    @property
    def choices(self) -> tuple[str, str, Request, str]:
        """Return what its node chose: the object, the key pair with its names, and the TPM."""
        return self.name, self.cluster, self.request, self.key

    @property
    def secret(self) -> Secret:
        """Return the values from which the signer derives the secret: the answer's own contents."""
        return Secret(self.cluster, self.requester, self.request, self.key, self.tpm)


def tpm_of(key: str) -> str:
    """Return the TPM that holds an endorsement key (`T9-ecc` is a second key in `T9`)."""
    return key.partition("-")[0]


def answer(name: str, place: Place, requester: str, made_by: str, key: str) -> Answer:
    """Return an honest answer: the TPM with this key quotes over its own challenge."""
    request = Request(made_by, place.name, place.provider_id)
    secret = Secret(place.cluster, requester, request, key, tpm_of(key))
    quote = Quote(tpm_of(key), secret, name, request)
    return Answer(name, place.cluster, requester, request, key, tpm_of(key), quote, annotation="")


def expected(it: Answer) -> Quote:
    """Return the only quote that proves an answer (Q1, Q2)."""
    return Quote(it.tpm, it.secret, it.name, it.request)


def binding(quote: Quote, broken: frozenset[Rule]) -> Quote:
    """Blank the fields that broken rules leave out of a quote, so that quotes compare as equal."""
    nothing = Request("", "", "")
    secret, answered = quote.secret, quote.request
    request = nothing if Rule.BOUND_REQUEST in broken else secret.request
    if Rule.BOUND_ANSWER_REQUEST in broken:
        answered = nothing
    cluster = "" if Rule.BOUND_CLUSTER in broken else secret.cluster
    key = "" if Rule.BOUND_KEY in broken else secret.key
    name = "" if Rule.BOUND_OBJECT in broken else quote.name
    secret = Secret(cluster, secret.requester, request, key, secret.tpm)
    return Quote(quote.tpm, secret, name, answered)


def proves(it: Answer, broken: frozenset[Rule]) -> bool:
    """Return whether the quote in an answer is the expected one (Q1, Q2)."""
    return binding(it.quote, broken) == binding(expected(it), broken)


class Attacker(NamedTuple):
    """What the attacker has: keys in its own TPMs, credentials, and everything that CSRs show."""

    keys: tuple[str, ...]
    requesters: tuple[str, ...]
    places: tuple[Place, ...]
    """Machines for which it asks for a certificate."""
    honest: frozenset[Answer]
    """Answers of honest nodes that it can copy."""
    writes_csrs: bool
    """Whether it can also write a challenge over that of a node's offer, and delete CSRs."""


def requests(who: Attacker) -> set[Request]:
    """Return the PKCS#10 requests that the attacker can send: its own, and copies."""
    own = {Request(ATTACKER, place.name, place.provider_id) for place in who.places}
    return own | {it.request for it in who.honest}


def quotes(who: Attacker) -> Iterator[Quote]:
    """Return the attacker's quotes: its TPMs' over secrets that they can open, and copies.

    A node cannot see for which offer a challenge was made. So where the attacker writes challenges,
    it has a quote of each honest node over the secret of each offer that names the node's keys.
    """
    clusters = {place.cluster for place in who.places}
    names = {OWN_NAME} | {it.name for it in who.honest}
    for name, cluster, requester, request, key in product(
        names, clusters, who.requesters, requests(who), who.keys
    ):
        secret = Secret(cluster, requester, request, key, tpm_of(key))
        yield Quote(tpm_of(key), secret, name, request)
    yield from (it.quote for it in who.honest)
    if who.writes_csrs:
        offered = product(clusters, who.requesters, requests(who), who.honest)
        for cluster, requester, request, it in offered:
            secret = Secret(cluster, requester, request, it.key, it.tpm)
            yield Quote(it.tpm, secret, it.name, it.request)


def forgeries(who: Attacker, broken: frozenset[Rule]) -> list[Answer]:
    """Return every answer that the attacker can file and that proves itself, one of each kind.

    Combines every object name, requester, PKCS#10 request, endorsement key, attestation key and
    quote. The name of an honest answer is free only in another cluster, or if the attacker deletes
    CSRs. Several answers may have the same effect on claims. One of them, with the attacker's own
    key pair and object name, represents them all.
    """
    known = {binding(quote, broken): quote for quote in quotes(who)}
    keys = {*who.keys, *(it.key for it in who.honest)}
    names = {OWN_NAME} | {it.name for it in who.honest}
    taken = set() if who.writes_csrs else {(it.name, it.cluster) for it in who.honest}
    by_effect: dict[tuple[Place, str, str], tuple[str, Request, Answer]] = {}
    for place, name, requester, request, key, tpm in product(
        who.places, names, who.requesters, requests(who), keys, {tpm_of(key) for key in keys}
    ):
        if (request.name, request.provider_id) != place[1:] or (name, place.cluster) in taken:
            continue
        secret = Secret(place.cluster, requester, request, key, tpm)
        quote = known.get(binding(Quote(tpm, secret, name, request), broken))
        kind = (place, requester, key)
        if quote and (
            kind not in by_effect or is_own(name, request) > is_own(*by_effect[kind][:2])
        ):
            filed = Answer(name, place.cluster, requester, request, key, tpm, quote, key)
            by_effect[kind] = (name, request, filed)
    return [*(filed for *_, filed in by_effect.values()), *offers(who, keys, broken)]


def is_own(name: str, request: Request) -> tuple[bool, bool]:
    """Return whether the key pair is the attacker's, which gains it most, and then the object."""
    return request.made_by == ATTACKER, name == OWN_NAME


def offers(who: Attacker, keys: Iterable[str], broken: frozenset[Rule]) -> Iterator[Answer]:
    """Return the attacker's offers, which name any key: they matter only if a rule is broken."""
    if Rule.ONLY_ANSWERS_CLAIM in broken:
        for place, key in product(who.places, keys):
            yield answer(OFFER, place, who.requesters[0], ATTACKER, key)
