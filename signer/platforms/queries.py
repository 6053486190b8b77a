"""Queries platforms for endorsement keys and VM IDs, and keeps their answers for a while.

`PlatformQueries` never waits: a worker gets the last answer, or an error and a query that runs on a
thread of its own pool. The CSR is verified again when the answer arrives.

Every provider ID is written by a tenant, and offers come from anyone with a bootstrap token. So
these limits come before a query:

- An account gets a few queries a second, which the namespaces share in equal parts. So they do not
  use up its quota, which the infrastructure provider of the platform needs as well, and a tenant
  with several namespaces leaves a part to the others.
- An account has a few queries at the same time, and the threads take turns between namespaces.
- Replicas that share the Clusters divide both limits: all of them use the same account.
- A platform that does not answer is not queried for a while (circuit breaker of the account).
- An instance is queried again after a minute at the earliest, or after some seconds when a query
  failed. A good answer is used for an hour.

An answer that lacks the expected key is used for one minute only: instances of the same name may
follow each other, and a wrong key is denied. A query that fails leaves the last answer in use,
unless the platform says that the instance is in another location.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key

from common.errors import Waiting
from common.public_keys import InvalidKey, spki_sha256
from signer.errors import (
    PlatformAnswerPending,
    PlatformLocationNotAllowed,
    PlatformQueryFailed,
    PlatformUnavailable,
)
from signer.fairness.circuit_breaker import BreakerState, CircuitBreaker
from signer.fairness.task_pool import TaskPool
from signer.fairness.token_buckets import SharedTokens
from signer.platforms.platform import Platform, VmPlatform
from signer.policy.policy import PlatformRules
from signer.seams import PlatformAnswer

_logger = logging.getLogger(__name__)

KEY_SECONDS: Final = 3600.0
"""How long an answer with the expected key is used. An instance keeps its TPM as long as it exists;
the limit is for names that a platform uses again."""
OTHER_KEY_SECONDS: Final = 60.0
"""How long an answer without the expected key is used."""
FAILURE_SECONDS: Final = 10.0
"""How long a failed query is not repeated."""
OVERDUE_SECONDS: Final = 15.0
"""Seconds after which a query that still runs counts as unanswered."""
QPS: Final = 8.0
BURST: Final = 80.0
"""Queries of all replicas to one account. A namespace that is alone gets half, so a thousand
machines take four minutes. AWS allows an account about 20 calls a second, and a query of AWS is two
calls."""
MAX_CONCURRENT: Final = 4
"""Queries to one account at the same time."""
_MAX_ANSWERS: Final = 20_000
"""The oldest ones are dropped. Queries of one account without a pause fill them in 41 minutes."""
_MAX_KEYS: Final = 8
"""Keys of one instance: RSA and ECC, of one TPM."""


class _Account(NamedTuple):
    """An account of a platform. Policies with the same file share its limits."""

    type: str
    credentials_file: str


class _Instance(NamedTuple):
    """An instance, and the rules under which it is queried."""

    rules: PlatformRules
    provider_id: str

    @property
    def account(self) -> _Account:
        return _Account(self.rules.type, self.rules.credentials_file)


class _Failure(NamedTuple):
    """Why a query failed. An exception is made from it for each CSR that waits."""

    error: type[Waiting]
    message: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _LastAnswer:
    """What the last query of an instance gave, on the monotonic clock."""

    at: float
    """When the last query ended."""
    given: PlatformAnswer = field(default_factory=PlatformAnswer)
    """That of the last query that did not fail."""
    given_at: float = 0.0
    failure: _Failure | None = None
    """Why the last query failed."""

    def gives(self, expected: str, now: float) -> bool:
        """Return whether the platform gave this key not long ago."""
        return expected in self.given.endorsement_keys and now - self.given_at < KEY_SECONDS

    def is_current(self, expected: str, now: float) -> bool:
        """Return whether the answer may still be used about a key."""
        seconds = OTHER_KEY_SECONDS if self.failure is None else FAILURE_SECONDS
        return self.gives(expected, now) or now - self.at < seconds


@dataclass(slots=True)
class _State:
    """What is known of all platforms; only under the lock."""

    answers: OrderedDict[_Instance, _LastAnswer] = field(default_factory=OrderedDict)
    running: dict[_Instance, float] = field(default_factory=dict)
    """When the queries began that have not ended."""
    busy: Counter[_Account] = field(default_factory=Counter)
    breakers: dict[_Account, CircuitBreaker] = field(default_factory=dict)
    tokens: dict[_Account, SharedTokens] = field(default_factory=dict)
    """Shared by namespaces."""


class PlatformQueries:
    """A `PlatformSource` for all policies; any thread may call it."""

    def __init__(
        self,
        pool: TaskPool,
        platform_of: Callable[[PlatformRules], Platform | VmPlatform],
        *,
        answered: Callable[[str], None],
        replicas: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        """Call `answered` with the provider ID when a query has ended.

        `replicas` returns how many replicas share the Clusters, 0 where that is not known.
        """
        self._pool = pool
        self._platform_of = platform_of
        self._answered = answered
        self._replicas = replicas
        self._monotonic = monotonic
        self._lock = Lock()
        self._state = _State()

    def answer(
        self, namespace: str, provider_id: str, rules: PlatformRules, *, expected: str
    ) -> PlatformAnswer:
        """Return what the platform said about an instance not long ago.

        Raises:
            PlatformAnswerPending: a query is under way, or is due.
            PlatformUnavailable, PlatformQueryFailed, PlatformLocationNotAllowed: nothing is known.

        """
        instance = _Instance(rules, provider_id)
        with self._lock:
            now = self._monotonic()
            answer = self._state.answers.get(instance)
            if answer is None or not answer.is_current(expected, now):
                self._require_query(instance, namespace, now)
                if answer is None or answer.failure is None:
                    raise PlatformAnswerPending("the platform has not answered yet")
        if answer.failure is not None and not answer.gives(expected, now):
            # Also while it is queried again: the CSR keeps its reason, and `answered` wakes it.
            error, message, detail = answer.failure
            raise error(message, detail=detail)
        return answer.given

    def _require_query(self, instance: _Instance, namespace: str, now: float) -> None:
        """Start a query if none runs and the limits allow one. Called with the lock held."""
        state, account = self._state, instance.account
        begun = state.running.get(instance)
        if begun is not None:
            if now - begun > OVERDUE_SECONDS:
                raise PlatformUnavailable("the platform does not answer")
            return
        breaker = state.breakers.setdefault(account, CircuitBreaker())
        if breaker.state(now) is BreakerState.OPEN:
            raise PlatformUnavailable("the platform does not answer, and is queried again later")
        concurrent = max(1, MAX_CONCURRENT // self._parts())
        if state.busy[account] >= breaker.max_workers(concurrent, now):
            return
        if account not in state.tokens:
            state.tokens[account] = SharedTokens(
                qps=QPS, burst=BURST, monotonic=self._monotonic, processes=self._parts
            )
        if not state.tokens[account].try_acquire(namespace):
            return
        self._pool.submit(namespace, lambda: self._run(instance))
        state.running[instance] = now
        state.busy[account] += 1

    def _parts(self) -> int:
        return max(1, self._replicas())

    def _run(self, instance: _Instance) -> None:
        """Query a platform and keep the answer; on a thread of the pool."""
        given = PlatformAnswer()
        failure: _Failure | None = None
        try:
            given = self._query(instance)
        except (PlatformUnavailable, PlatformQueryFailed, PlatformLocationNotAllowed) as error:
            failure = _Failure(type(error), error.message, error.detail)
        except Exception:
            _logger.exception("query of a platform failed", extra={"fields": _fields(instance)})
            message, detail = "the query of the platform failed", "the log has the traceback"
            failure = _Failure(PlatformQueryFailed, message, detail)
        self._finish(instance, given, failure)
        self._answered(instance.provider_id)

    def _query(self, instance: _Instance) -> PlatformAnswer:
        rules, provider_id = instance
        platform = self._platform_of(rules)
        try:
            location = platform.location(provider_id)
        except ValueError as error:
            message = "the provider ID of the Machine is not of the policy's platform"
            raise PlatformLocationNotAllowed(message, detail=str(error)) from error
        if location is not None and location not in rules.locations:
            raise PlatformLocationNotAllowed(
                "the policy does not allow the location that the Machine's provider ID names",
                detail=location,
            )
        if isinstance(platform, VmPlatform):
            return PlatformAnswer(vm_id=platform.vm_id(provider_id))
        return PlatformAnswer(endorsement_keys=_names(platform.endorsement_keys(provider_id)))

    def _finish(self, instance: _Instance, given: PlatformAnswer, failure: _Failure | None) -> None:
        unavailable = failure is not None and failure.error is PlatformUnavailable
        state, account = self._state, instance.account
        with self._lock:
            now = self._monotonic()
            del state.running[instance]
            state.busy[account] -= 1
            answer = _LastAnswer(at=now, given=given, given_at=now, failure=failure)
            known = state.answers.get(instance)
            # A refusal says that the platform answered, and that the policy refuses the answer.
            refusal = failure is not None and failure.error is PlatformLocationNotAllowed
            if known is not None and failure is not None and not refusal:
                # A query about another key, which anyone may cause, discards no answer.
                answer = replace(known, at=now, failure=failure)
            state.answers[instance] = answer
            state.answers.move_to_end(instance)
            if len(state.answers) > _MAX_ANSWERS:
                state.answers.popitem(last=False)
            # A tenant can cause all other failures with a provider ID. They must not stop the other
            # tenants, and do not prove that the platform answers.
            opened = (unavailable or failure is None) and state.breakers[account].record(
                failed=unavailable, now=now
            )
        if opened:
            fields = {**_fields(instance), "alarm": True}
            _logger.warning("circuit breaker of a platform opened", extra={"fields": fields})


def _names(keys: Collection[bytes]) -> frozenset[str]:
    """Return the EndorsementKey names of public keys."""
    if len(keys) > _MAX_KEYS:
        raise PlatformQueryFailed("the platform gives too many endorsement keys")
    try:
        return frozenset(spki_sha256(load_der_public_key(key)).hex() for key in keys)
    except (InvalidKey, UnsupportedAlgorithm, ValueError) as error:
        message = "the platform gives an endorsement key that cannot be read"
        raise PlatformQueryFailed(message, detail=str(error)) from error


def _fields(instance: _Instance) -> dict[str, object]:
    rules, provider_id = instance
    return {
        "platform": rules.type,
        "credentialsFile": rules.credentials_file,
        "providerID": provider_id,
    }
