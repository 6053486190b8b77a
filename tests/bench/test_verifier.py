"""CPU time of an answer compared with its bare cryptographic calls, which take turns in one run.

make bench ARGS=tests/bench/test_verifier.py
"""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from random import Random

from signer.issue.certificate import issue_certificate
from signer.verify.claimed_answer import make_claims
from tests.bench.answer_fixtures import Node, certified, issued, ordinary, rsa_only
from tests.builders import certificates
from tests.builders.software_tpm import rsa_key
from tests.fakes.claims import FakeClaimStore, StoredClaims

TURNS = 1500
GOAL = 2.0


def nodes() -> list[tuple[Node, float]]:
    """Make nodes, each with its maximum ratio.

    This maximum is the goal. Nodes without ECC have cheap cryptography, and meet the goal only with
    an optimized build of Python. Their maximum only prevents unnoticed growth.
    """
    root, below = certificates.vendor()
    old_root = certificates.authority("Old Root CA", key=rsa_key(4096))
    old = certificates.authority("Old TPM CA", old_root, key=rsa_key(2048, 2))
    kubeadm = certificates.authority("kubernetes", key=rsa_key(2048, 3))
    return [
        (ordinary("on record: P-256, EK P-256", 1), GOAL),
        (ordinary("on record: P-256, EK RSA 2048", 0), GOAL),
        (rsa_only("on record: P-256, a TPM of RSA 2048 alone"), 2.2),
        (certified("certified: two authorities of P-384", root, below), GOAL),
        (certified("certified: authorities of RSA 4096, 2048", old_root, old), 2.2),
        (issued("on record, and a certificate by RSA 2048", kubeadm), GOAL),
    ]


def test_cpu_of_an_answer() -> None:
    """The ratio is at most the maximum. The lower quartile of all turns is compared."""
    lines = [f"{'Verified answers':44}{'bare':>10}{'answer':>12}{'ratio':>9}  (goal: {GOAL:.2f})"]
    over = []
    for node, most in nodes():
        bare, whole = measured(node.bare(), partial(answered, node))
        ratio = whole / bare
        lines.append(f"  {node.about:42}{bare:>7.0f} us{whole:>9.0f} us{ratio:>9.2f}")
        if ratio > most:
            over.append(f"{node.about}: {ratio:.2f} is over {most:.2f}")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    assert not over


def measured(bare: Callable[[], None], whole: Callable[[], None]) -> tuple[float, float]:
    """Return the CPU microseconds of this thread for each of two calls."""
    turns = [(cpu(bare), cpu(whole)) for _ in range(TURNS)]
    of_bare, of_whole = (sorted(column)[TURNS // 4] for column in zip(*turns, strict=True))
    return of_bare / 1000, of_whole / 1000


def cpu(call: Callable[[], None]) -> int:
    """Return the CPU nanoseconds of a call. Other processes are not counted."""
    start = time.thread_time_ns()
    call()
    return time.thread_time_ns() - start


def answered(node: Node) -> None:
    """Judge the answer. If its certificate is measured, also claim and issue."""
    world = node.world
    verified = world.verify_answer(node.csr)
    if node.authority is None:
        return
    claims = FakeClaimStore(store=StoredClaims(machines=world.store.machines))
    not_after = world.now + timedelta(days=7)
    certificate = issue_certificate(
        verified,
        not_after=not_after,
        authority=node.authority,
        now=world.now,
        random=Random(1).randbytes,
    )
    make_claims(verified, world.context(), claims=claims, certificate=certificate)
