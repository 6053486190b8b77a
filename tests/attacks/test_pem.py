"""Requests whose text two readers parse differently.

The API server parses the first PEM block of `spec.request` alone. A lenient signer might find
another request after it, inside it or in its headers, and certify what the API server did not
validate. So the text has exactly one form (P1, P2). No signature covers the PEM text, so each
attack carries a good request and a good answer.
"""

import base64
from collections.abc import Callable

import pytest

from common.errors import PemBlocksUnexpected, PemNotCanonical, ProviderUnknown, TooLarge
from common.evidence import encode_attestation_data
from common.formats.pem import decode_blocks, encode_block
from common.names import PEM_DATA, PEM_PROVIDER, PEM_REQUEST
from common.requests.csr import MAX_REQUEST, encode_request
from signer.kinds.csr import Csr
from tests.attacks.runner import Attack, Mutation, Table, assert_issued, assert_refused, attacks
from tests.builders.scenario import Scenario

Edit = Callable[[bytes], bytes]
Blocks = list[tuple[str, bytes]]


def text(edit: Edit) -> Mutation:
    """Edit the text of a good answer."""

    def mutate(scenario: Scenario) -> Csr:
        good = scenario.answer_csr().request
        edited = edit(good)
        assert edited != good
        return scenario.answer_csr(request=edited)

    return mutate


def blocks(edit: Callable[[Blocks], Blocks]) -> Mutation:
    """Edit the blocks of a good answer, each in canonical form."""
    return text(lambda t: b"".join(encode_block(*block) for block in edit(list(decode_blocks(t)))))


def other_request(scenario: Scenario) -> bytes:
    """Return the request of another node, signed by its own key."""
    return Scenario(node_name="node-2.example", kubelet_key=scenario.kubelet_key).pkcs10()


def smuggled(scenario: Scenario) -> Csr:
    """Put another node's request after the first."""
    request = scenario.answer_csr().request
    extra = encode_block(PEM_REQUEST, other_request(scenario))
    return scenario.answer_csr(request=request + extra)


def smuggled_first(scenario: Scenario) -> Csr:
    """Put another node's request before the first."""
    extra = encode_block(PEM_REQUEST, other_request(scenario))
    return scenario.answer_csr(request=extra + scenario.answer_csr().request)


def wrapped(columns: int) -> Edit:
    """Wrap each block at another width."""

    def edit(good: bytes) -> bytes:
        written = b""
        for label, data in decode_blocks(good):
            body = base64.b64encode(data)
            lines = [body[i : i + columns] for i in range(0, len(body), columns)]
            head, tail = (f"-----{w} {label}-----".encode() for w in ("BEGIN", "END"))
            written += b"\n".join([head, *lines, tail, b""])
        return written

    return edit


def headers(good: bytes) -> bytes:
    """Add RFC 1421 headers, which Go skips."""
    first = f"-----BEGIN {PEM_REQUEST}-----\n".encode()
    return good.replace(first, first + b"Proc-Type: 4,ENCRYPTED\n\n")


def line_feed_moved(good: bytes) -> bytes:
    """Move the line feed of the request's last line before its last character."""
    at = good.index(END)
    return good[: at - 2] + b"\n" + good[at - 2 : at - 1] + good[at:]


def dangling_bits(scenario: Scenario) -> Csr:
    """Set a bit under the padding of the last block, which decoders ignore."""
    data = encode_attestation_data(scenario.answer())
    data += b" " * (-(len(data) + 2) % 3)
    good = encode_request(scenario.pkcs10(), data)
    at = good.rindex(b"==")
    return scenario.answer_csr(request=good[: at - 1] + bytes([good[at - 1] + 1]) + good[at:])


def relabelled(label: str, place: int) -> Mutation:
    """Give a block another label."""

    def edit(parsed: Blocks) -> Blocks:
        parsed[place] = (label, parsed[place][1])
        return parsed

    return blocks(edit)


def provider(name: bytes) -> Mutation:
    """Name another attestation provider."""
    return blocks(lambda b: [b[0], (PEM_PROVIDER, name), b[2]])


def huge(scenario: Scenario) -> Csr:
    """File more than etcd accepts."""
    good = scenario.answer_csr().request
    return scenario.answer_csr(request=good + b"A" * (MAX_REQUEST + 1 - len(good)))


def huge_block(scenario: Scenario) -> Csr:
    """Fill a canonical text beyond the limit."""
    return scenario.answer_csr(request=encode_request(scenario.pkcs10(), b"A" * MAX_REQUEST))


END = f"-----END {PEM_REQUEST}-----\n".encode()
BEGIN = f"-----BEGIN {PEM_REQUEST}-----\n".encode()

TABLE: Table = {
    TooLarge: {
        "text over the limit": huge,
        "canonical text over the limit": huge_block,
    },
    PemBlocksUnexpected: {
        "nothing at all": text(lambda _: b""),
        "another node's request after it": smuggled,
        "another node's request before": smuggled_first,
        "request alone": blocks(lambda b: b[:1]),
        "no data": blocks(lambda b: b[:2]),
        "no provider": blocks(lambda b: [b[0], b[2]]),
        "data twice": blocks(lambda b: [*b, b[2]]),
        "provider twice": blocks(lambda b: [b[0], b[1], *b[1:]]),
        "tens of thousands of blocks": blocks(lambda _: [("A", b"")] * 40_000),
        "all of it twice": blocks(lambda b: b * 2),
        "data twice, and text": text(lambda t: t + t[t.rindex(b"-----BEGIN") :] + b"text"),
        "attestation first": blocks(lambda b: [b[1], b[2], b[0]]),
        "data before provider": blocks(lambda b: [b[0], b[2], b[1]]),
        "a certificate in addition": blocks(lambda b: [*b, ("CERTIFICATE", b"")]),
        "label of old requests": relabelled("NEW CERTIFICATE REQUEST", 0),
        "label of certificates": relabelled("CERTIFICATE", 0),
        "the proposal's example label": relabelled("ATTESTATION DATA", 2),
        "data as provider": relabelled(PEM_DATA, 1),
    },
    PemNotCanonical: {
        "text before the first block": text(lambda t: b"hi\n" + t),
        "empty line before": text(lambda t: b"\n" + t),
        "byte order mark": text(lambda t: b"\xef\xbb\xbf" + t),
        "text after the last block": text(lambda t: t + b"hi\n"),
        "empty line after": text(lambda t: t + b"\n"),
        "NUL after": text(lambda t: t + b"\0"),
        "no final line feed": text(lambda t: t[:-1]),
        "text between blocks": text(lambda t: t.replace(END, END + b"# comment\n")),
        "short line in a block": text(lambda t: t.replace(b"dHBt", b"dHB\nt")),
        "empty line in a block": text(lambda t: t.replace(b"dHBt", b"dHBt\n")),
        "no padding": text(lambda t: t.replace(b"dHBt", b"dHB")),
        "too much padding": text(lambda t: t.replace(b"dHBt", b"dHBtCg=")),
        "padding alone": text(lambda t: t.replace(b"dHBt", b"====")),
        "empty line between": text(lambda t: t.replace(END, END + b"\n")),
        "carriage returns": text(lambda t: t.replace(b"\n", b"\r\n")),
        "carriage return after a label": text(lambda t: t.replace(BEGIN, BEGIN[:-1] + b"\r\n")),
        "lines of 63": text(wrapped(63)),
        "lines of 76": text(wrapped(76)),
        "one line": text(wrapped(100_000)),
        "end of a block on its last line": text(line_feed_moved),
        "headers in the request": text(headers),
        "bits under the padding": dangling_bits,
        "space in a line": text(lambda t: t.replace(BEGIN, BEGIN + b" ")),
        "space after a label": text(lambda t: t.replace(END, END[:-1] + b" \n")),
        "small letters in a label": text(
            lambda t: t.replace(b"CERTIFICATE REQUEST", b"certificate request")
        ),
        "a label of nothing": text(lambda t: t.replace(f" {PEM_REQUEST}".encode(), b" ")),
        "end of another label": text(lambda t: t.replace(END, END.replace(b"REQUEST", b"REPLAY"))),
        "four dashes": text(lambda t: t.replace(BEGIN, BEGIN[1:])),
        # Not "+" and "/": with some keys the request has neither.
        "URL-safe base64": text(lambda t: t.replace(b"\nMI", b"\n-_", 1)),
        "cut in the middle": text(lambda t: t[: len(t) // 2]),
    },
    ProviderUnknown: {
        "no provider named": provider(b""),
        "provider with line feed": provider(b"tpm\n"),
        "provider in capitals": provider(b"TPM"),
        "provider of a cloud": provider(b"aws"),
        "unknown provider": provider(b"none"),
        "provider with NUL": provider(b"tpm\0"),
    },
}
ATTACKS = attacks(TABLE)


def test_the_good_case_passes() -> None:
    assert_issued(Scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
