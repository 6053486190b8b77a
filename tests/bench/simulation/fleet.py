"""The exchanges of a fleet as events: begin, offer, answer, claims, and a certificate or a failure.

An exchange is *issued*, *expired* (its node gave up, and begins another one later), or *pending* at
the end. A node is *lost* when its certificate ends before the next one: it needs a bootstrap token.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from authenticator.enroll.exchange import MAX_BACKOFF_SECONDS, OFFER_TTL_SECONDS
from authenticator.model import EXCHANGE_TTL_SECONDS
from common.errors import AttestationError
from signer.controller.reconcile.limits import BURST, QPS
from signer.controller.reconcile.offers import MAX_OFFER_AGE
from signer.verify.answer import CHALLENGE_MAX_AGE
from tests.bench.simulation.costs import WRITES_OF_JOIN, WRITES_OF_RENEWAL, Costs
from tests.bench.simulation.node import (
    CALL_SPREAD,
    EXPIRED,
    UNANSWERED,
    UNAVAILABLE,
    renewal_delay,
    retry_delay,
)
from tests.bench.simulation.queues import MINUTE, Outage, Server, TokenBucket

NEVER: Final = Outage()
_SIGNER_RETRY_SECONDS: Final = 15.0
"""The longest pause of the signer's work queue between two attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fleet and what happens to it. Times are seconds since the start."""

    name: str
    lifetime: int
    duration: int
    nodes: int = 100_000
    clusters: int = 2_000
    signers: int = 2
    """Replicas that share the Clusters; each uses one core."""
    management_cores: float = 4.0
    """Of the management cluster's API server and etcd."""
    join_within: float = 0.0
    """All nodes join within this time; 0 is a fleet that has run for long."""
    one_token: bool = False
    """The joining nodes share one bootstrap token in one cluster."""
    signer_outage: Outage = NEVER
    management_outage: Outage = NEVER
    workload_outage: Outage = NEVER
    """Of the API servers of all workload clusters at once."""

    @property
    def outage(self) -> Outage:
        """Return the outage, or one that ends at once."""
        outages = (self.signer_outage, self.management_outage, self.workload_outage)
        return max(outages, key=lambda outage: outage.end)


@dataclass(slots=True)
class Exchange:
    """One exchange of one node."""

    node: int
    began: float
    joins: bool
    challenged: float = 0.0

    @property
    def gives_up(self) -> float:
        """Return when the node discards the exchange."""
        return self.began + EXCHANGE_TTL_SECONDS


@dataclass(slots=True)
class Result:
    """What became of the exchanges, and how busy each part was."""

    asked: int = 0
    issued: int = 0
    expired: int = 0
    pending: int = 0
    """Exchanges that had not ended at the end."""
    lost: int = 0
    due: int = 0
    """Nodes that need a certificate now."""
    most_due: int = 0
    recovered: float | None = None
    """Seconds from the end of the outage until less than a thousandth of the fleet is due."""
    writes: Counter[int] = field(default_factory=Counter)
    """To the management cluster, by minute."""
    certificates: Counter[int] = field(default_factory=Counter)
    """By minute."""
    latencies: list[float] = field(default_factory=list)
    """Seconds from the begin of an exchange to its certificate."""
    signers: list[Server] = field(default_factory=list)
    management: Server = field(default_factory=lambda: Server(NEVER))


class Fleet:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, costs: Costs, seed: int) -> None:
        self._scenario = scenario
        self._costs = costs
        self._random = Random(seed).random
        self._events: list[tuple[float, int, Callable[[float, Exchange], None], Exchange]] = []
        self._count = 0
        self._delays = [
            renewal_delay(f"node-{n}", scenario.lifetime) for n in range(scenario.nodes)
        ]
        self._not_after: list[float | None] = [None] * scenario.nodes
        self._failures: Counter[int] = Counter()
        self._bucket = TokenBucket(QPS, BURST) if scenario.one_token else None
        self._result = Result(
            signers=[Server(scenario.signer_outage) for _ in range(scenario.signers)],
            management=Server(scenario.management_outage, scenario.management_cores),
        )
        self._populate()

    def run(self, progress: Callable[[float], None] = lambda _: None) -> Result:
        """Run to the end; call `progress` with the share that is done, once a simulated minute."""
        minute = 0
        while self._events and self._events[0][0] < self._scenario.duration:
            now, _, handle, exchange = heapq.heappop(self._events)
            if now // MINUTE > minute:
                minute = int(now // MINUTE)
                progress(now / self._scenario.duration)
            handle(now, exchange)
        waits = (self._need, self._begin)
        self._result.pending = sum(handle not in waits for _, _, handle, _ in self._events)
        self._result.latencies.sort()
        return self._result

    def _populate(self) -> None:
        """Let each node join, or give it a certificate of any age below its renewal point."""
        for node, delay in enumerate(self._delays):
            if self._scenario.join_within:
                self._schedule(self._random() * self._scenario.join_within, node)
                continue
            received = -self._random() * delay
            self._not_after[node] = received + self._scenario.lifetime
            self._schedule(received + delay + self._random() * CALL_SPREAD, node)

    def _push(
        self, when: float, handle: Callable[[float, Exchange], None], exchange: Exchange
    ) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, handle, exchange))

    def _schedule(self, when: float, node: int) -> None:
        """Let a node need a certificate from `when` on."""
        self._push(when, self._need, Exchange(node, when, joins=False))

    def _need(self, now: float, exchange: Exchange) -> None:
        self._result.due += 1
        self._result.most_due = max(self._result.most_due, self._result.due)
        self._begin(now, exchange)

    def _begin(self, now: float, exchange: Exchange) -> None:
        """Begin an exchange, which waits while the API server of the cluster does not answer."""
        if self._is_lost(now, exchange.node):
            self._lose()
            return
        self._result.asked += 1
        joins = self._not_after[exchange.node] is None
        exchange = Exchange(exchange.node, now, joins=joins)
        available = self._scenario.workload_outage.over(now)
        if available > now + EXCHANGE_TTL_SECONDS:
            self._push(now + EXCHANGE_TTL_SECONDS, self._fail_unavailable, exchange)
            return
        if available > now:
            available += self._random() * MAX_BACKOFF_SECONDS * (1 + self._random())
        filed = available + self._costs.network
        if self._bucket is not None:
            filed = self._bucket.admit(filed)
        self._push(filed, self._offer, exchange)

    def _offer(self, now: float, exchange: Exchange) -> None:
        """Verify an offer and write its challenge, unless its node has discarded it."""
        signer, work = self._signer(exchange), self._work(exchange) * self._costs.offer_share
        if signer.start(now) - now > MAX_OFFER_AGE.total_seconds():
            work = self._costs.discarded_offer
        exchange.challenged = signer.serve(now, work)
        seen = self._scenario.workload_outage.over(exchange.challenged + self._costs.network)
        if seen > exchange.began + OFFER_TTL_SECONDS:
            give_up = max(now, exchange.began + OFFER_TTL_SECONDS)
            self._push(give_up, self._fail_unanswered, exchange)
        else:
            self._push(seen + self._costs.node, self._answer, exchange)

    def _answer(self, now: float, exchange: Exchange) -> None:
        """Verify an answer, for which the node does not wait longer than an exchange takes."""
        work = self._work(exchange) * (1 - self._costs.offer_share)
        done = self._signer(exchange).serve(now, work)
        if done > exchange.gives_up:
            self._push(max(now, exchange.gives_up), self._fail_expired, exchange)
        else:
            self._push(done, self._claim, exchange)

    def _claim(self, now: float, exchange: Exchange) -> None:
        """Write the claims, if the challenge is not too old by then; then the node has both."""
        management = self._result.management
        available = management.outage.over(now)
        start = management.start(now)
        too_old = start - exchange.challenged > CHALLENGE_MAX_AGE.total_seconds()
        if too_old or start > exchange.gives_up:
            self._push(max(now, exchange.gives_up), self._fail_expired, exchange)
            return
        if available > now:
            self._push(available + self._random() * _SIGNER_RETRY_SECONDS, self._claim, exchange)
            return
        costs = self._costs
        writes = WRITES_OF_JOIN if exchange.joins else WRITES_OF_RENEWAL
        work = costs.claims_of_join if exchange.joins else costs.claims_of_renewal
        done = management.serve(now, work)
        self._result.writes[int(done // MINUTE)] += writes
        received = self._scenario.workload_outage.over(done + costs.network)
        if received > exchange.gives_up:
            self._push(max(now, exchange.gives_up), self._fail_expired, exchange)
        else:
            self._push(received, self._receive, exchange)

    def _receive(self, now: float, exchange: Exchange) -> None:
        """Give the node its certificate, unless the one that it asked with has ended."""
        node, result = exchange.node, self._result
        if self._is_lost(now, node):
            result.expired += 1
            self._lose()
            return
        self._failures.pop(node, None)
        result.issued += 1
        result.certificates[int(now // MINUTE)] += 1
        result.latencies.append(now - exchange.began)
        self._settle(now)
        self._not_after[node] = now + self._scenario.lifetime
        self._schedule(now + self._delays[node] + self._random() * CALL_SPREAD, node)

    def _fail_unavailable(self, now: float, exchange: Exchange) -> None:
        self._fail(now, exchange, UNAVAILABLE)

    def _fail_unanswered(self, now: float, exchange: Exchange) -> None:
        self._fail(now, exchange, UNANSWERED)

    def _fail_expired(self, now: float, exchange: Exchange) -> None:
        self._fail(now, exchange, EXPIRED)

    def _fail(self, now: float, exchange: Exchange, error: AttestationError) -> None:
        """End an exchange without a certificate; the node begins another one after a pause."""
        self._result.expired += 1
        delay = retry_delay(error, self._failures[exchange.node], self._random())
        self._failures[exchange.node] += 1
        self._push(now + delay + self._random() * CALL_SPREAD, self._begin, exchange)

    def _is_lost(self, now: float, node: int) -> bool:
        """Return whether the node's certificate has ended."""
        not_after = self._not_after[node]
        return not_after is not None and now >= not_after

    def _lose(self) -> None:
        self._result.lost += 1
        self._result.due -= 1

    def _settle(self, now: float) -> None:
        """Note that a node needs no certificate any more."""
        result, outage = self._result, self._scenario.outage
        result.due -= 1
        few = result.due <= self._scenario.nodes / 1000
        if outage.end and now >= outage.end and few and result.recovered is None:
            result.recovered = now - outage.end

    def _work(self, exchange: Exchange) -> float:
        return self._costs.join if exchange.joins else self._costs.renewal

    def _signer(self, exchange: Exchange) -> Server:
        """Return the signer that serves the node's cluster."""
        cluster = 0 if self._scenario.one_token else exchange.node % self._scenario.clusters
        return self._result.signers[cluster % len(self._result.signers)]
