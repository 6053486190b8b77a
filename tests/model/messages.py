"""Section 3 with symbols for bytes: a message is the tuple of what it binds.

Perfect cryptography is assumed: a secret is known to whoever owns the TPM that holds both the
endorsement key and the attestation key it was made for, a quote is made by its TPM alone, and
all of it can be copied. Left out are the uid of A and all ages: here a challenge never expires
and anybody may ask for one, so the attacker can do more than in life.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from tests.model.rules import Rule

ATTACKER = "attacker"
OWN_NAME = "x"
"""Names the attacker's objects."""
OFFER = "offer"
"""Names the attacker's offer, only where a broken rule lets one claim."""


class Place(NamedTuple):
    """A Machine: where it is, what it is called, its provider ID (new for each new Machine)."""

    cluster: str
    name: str
    provider_id: str

    @property
    def node(self) -> tuple[str, str]:
        """Return what an AttestedNode is named after."""
        return self.cluster, self.name


class Request(NamedTuple):
    """The PKCS#10: whose kubelet key, for which node name and provider ID."""

    made_by: str
    name: str
    provider_id: str


class Secret(NamedTuple):
    """What a challenge's secret is derived from."""

    cluster: str
    requester: str
    request: Request
    key: str
    """The endorsement key."""
    tpm: str
    """The attestation key; each TPM derives one."""


class Quote(NamedTuple):
    """A quote by the attestation key of `tpm`; `secret` and `name` are its extraData."""

    tpm: str
    secret: Secret
    name: str


class Answer(NamedTuple):
    """A CSR B as it lies in the API server."""

    name: str
    cluster: str
    requester: str
    request: Request
    key: str
    tpm: str
    quote: Quote
    annotation: str
    """The `tpm-endorsement-key` annotation, from whoever created the object."""

    @property
    def made_by(self) -> str:
        """Return who made the key pair."""
        return self.request.made_by

    @property
    def place(self) -> Place:
        """Return the Machine that the request names, in the cluster where it was filed."""
        return Place(self.cluster, self.request.name, self.request.provider_id)

    @property
    def label(self) -> str:
        """Name it in traces: the attacker's objects have one name for all."""
        return f"{self.name} for {'/'.join(self.place)}"

    @property
    def secret(self) -> Secret:
        """Return what the signer derives the secret from: the answer's own contents."""
        return Secret(self.cluster, self.requester, self.request, self.key, self.tpm)


def tpm_of(key: str) -> str:
    """Return the TPM that holds an endorsement key (`T9-ecc` is a second one in `T9`)."""
    return key.partition("-")[0]


def answer(name: str, place: Place, requester: str, made_by: str, key: str) -> Answer:
    """Answer honestly: the TPM with this key quotes over its own challenge."""
    request = Request(made_by, place.name, place.provider_id)
    secret = Secret(place.cluster, requester, request, key, tpm_of(key))
    quote = Quote(tpm_of(key), secret, name)
    return Answer(name, place.cluster, requester, request, key, tpm_of(key), quote, annotation="")


def expected(it: Answer) -> Quote:
    """Compute from an answer the only quote that proves it (Q1, Q2)."""
    return Quote(it.tpm, it.secret, it.name)


def binding(quote: Quote, broken: frozenset[Rule]) -> Quote:
    """Blank what broken rules leave out of a quote, so that two of them compare alike."""
    secret, request = quote.secret, quote.secret.request
    if Rule.BOUND_REQUEST in broken:
        request = Request("", "", "")
    cluster = "" if Rule.BOUND_CLUSTER in broken else secret.cluster
    key = "" if Rule.BOUND_KEY in broken else secret.key
    name = "" if Rule.BOUND_OBJECT in broken else quote.name
    return Quote(quote.tpm, Secret(cluster, secret.requester, request, key, secret.tpm), name)


def proves(it: Answer, broken: frozenset[Rule]) -> bool:
    """Tell whether the quote in an answer is the expected one (Q1, Q2)."""
    return binding(it.quote, broken) == binding(expected(it), broken)


class Attacker(NamedTuple):
    """What the attacker has: keys in its own TPMs, credentials, and what it reads in CSRs."""

    keys: tuple[str, ...]
    requesters: tuple[str, ...]
    places: tuple[Place, ...]
    """Machines that it asks for."""
    honest: frozenset[Answer]
    """Answers of honest nodes, to copy from."""


def requests(who: Attacker) -> set[Request]:
    """List the PKCS#10 requests that the attacker can send: own ones, and copies."""
    own = {Request(ATTACKER, place.name, place.provider_id) for place in who.places}
    return own | {it.request for it in who.honest}


def quotes(who: Attacker) -> Iterator[Quote]:
    """List the quotes that the attacker has: its TPMs' over secrets they open, and copies."""
    clusters = {place.cluster for place in who.places}
    names = {OWN_NAME} | {it.name for it in who.honest}
    for name, cluster, requester, request, key in product(
        names, clusters, who.requesters, requests(who), who.keys
    ):
        secret = Secret(cluster, requester, request, key, tpm_of(key))
        yield Quote(tpm_of(key), secret, name)
    yield from (it.quote for it in who.honest)


def forgeries(who: Attacker, broken: frozenset[Rule]) -> list[Answer]:
    """List every answer that the attacker can file and that proves itself, one of each kind.

    All combinations are tried of an object's name, requester, PKCS#10, endorsement key,
    attestation key and quote. An honest answer's name is free in another cluster only. Of those
    with the same effect on claims, one over an own key pair and under an own name stands for all.
    """
    known = {binding(quote, broken): quote for quote in quotes(who)}
    keys = {*who.keys, *(it.key for it in who.honest)}
    names = {OWN_NAME} | {it.name for it in who.honest}
    taken = {(it.name, it.cluster) for it in who.honest}
    found: dict[tuple[Place, str, str], Answer] = {}
    for place, name, requester, request, key, tpm in product(
        who.places, names, who.requesters, requests(who), keys, {tpm_of(key) for key in keys}
    ):
        if (request.name, request.provider_id) != place[1:] or (name, place.cluster) in taken:
            continue
        secret = Secret(place.cluster, requester, request, key, tpm)
        quote = known.get(binding(Quote(tpm, secret, name), broken))
        kind = (place, requester, key)
        if quote and (kind not in found or (request.made_by, name) == (ATTACKER, OWN_NAME)):
            found[kind] = Answer(name, place.cluster, requester, request, key, tpm, quote, key)
    return [*found.values(), *offers(who, keys, broken)]


def offers(who: Attacker, keys: Iterable[str], broken: frozenset[Rule]) -> Iterator[Answer]:
    """List the attacker's offers, which name any key: they matter only if a rule is broken."""
    if Rule.ONLY_ANSWERS_CLAIM in broken:
        for place, key in product(who.places, keys):
            yield answer(OFFER, place, who.requesters[0], ATTACKER, key)
