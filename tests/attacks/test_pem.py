"""Requests whose text two readers parse differently.

The API server parses the first PEM block of `spec.request` alone. A lenient signer might find
another request after it, inside it or in its headers, and certify what the API server did not
validate. So the text has exactly one form (P1, P2). No signature covers the PEM text, so each
attack carries a good request and a good answer.
"""

import base64
from collections.abc import Callable

import pytest

from common.csr import MAX_REQUEST, encode_request
from common.errors import PemBlocksUnexpected, PemNotCanonical, ProviderUnknown, TooLarge
from common.evidence import encode_attestation_data
from common.names import PEM_DATA, PEM_PROVIDER, PEM_REQUEST
from common.pem import decode_blocks, encode_block
from signer.model import Csr
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused
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

ATTACKS = [
    Attack("P1", "text over the limit", TooLarge, huge),
    Attack("P1", "canonical text over the limit", TooLarge, huge_block),
    Attack("P2", "nothing at all", PemBlocksUnexpected, text(lambda _: b"")),
    Attack("P2", "text before the first block", PemNotCanonical, text(lambda t: b"hi\n" + t)),
    Attack("P2", "empty line before", PemNotCanonical, text(lambda t: b"\n" + t)),
    Attack("P2", "byte order mark", PemNotCanonical, text(lambda t: b"\xef\xbb\xbf" + t)),
    Attack("P2", "text after the last block", PemNotCanonical, text(lambda t: t + b"hi\n")),
    Attack("P2", "empty line after", PemNotCanonical, text(lambda t: t + b"\n")),
    Attack("P2", "NUL after", PemNotCanonical, text(lambda t: t + b"\0")),
    Attack("P2", "no final line feed", PemNotCanonical, text(lambda t: t[:-1])),
    Attack(
        "P2",
        "text between blocks",
        PemNotCanonical,
        text(lambda t: t.replace(END, END + b"# comment\n")),
    ),
    Attack(
        "P2", "empty line between", PemNotCanonical, text(lambda t: t.replace(END, END + b"\n"))
    ),
    Attack("P2", "carriage returns", PemNotCanonical, text(lambda t: t.replace(b"\n", b"\r\n"))),
    Attack(
        "P2",
        "carriage return after a label",
        PemNotCanonical,
        text(lambda t: t.replace(BEGIN, BEGIN[:-1] + b"\r\n")),
    ),
    Attack("P2", "lines of 63", PemNotCanonical, text(wrapped(63))),
    Attack("P2", "lines of 76", PemNotCanonical, text(wrapped(76))),
    Attack("P2", "one line", PemNotCanonical, text(wrapped(100_000))),
    Attack("P2", "end of a block on its last line", PemNotCanonical, text(line_feed_moved)),
    Attack("P2", "headers in the request", PemNotCanonical, text(headers)),
    Attack("P2", "bits under the padding", PemNotCanonical, dangling_bits),
    Attack(
        "P2", "space in a line", PemNotCanonical, text(lambda t: t.replace(BEGIN, BEGIN + b" "))
    ),
    Attack(
        "P2",
        "space after a label",
        PemNotCanonical,
        text(lambda t: t.replace(END, END[:-1] + b" \n")),
    ),
    Attack(
        "P2",
        "small letters in a label",
        PemNotCanonical,
        text(lambda t: t.replace(b"CERTIFICATE REQUEST", b"certificate request")),
    ),
    Attack(
        "P2",
        "a label of nothing",
        PemNotCanonical,
        text(lambda t: t.replace(f" {PEM_REQUEST}".encode(), b" ")),
    ),
    Attack(
        "P2",
        "end of another label",
        PemNotCanonical,
        text(lambda t: t.replace(END, END.replace(b"REQUEST", b"REPLAY"))),
    ),
    Attack("P2", "four dashes", PemNotCanonical, text(lambda t: t.replace(BEGIN, BEGIN[1:]))),
    # Not "+" and "/": with some keys the request has neither.
    Attack(
        "P2", "URL-safe base64", PemNotCanonical, text(lambda t: t.replace(b"\nMI", b"\n-_", 1))
    ),
    Attack("P2", "cut in the middle", PemNotCanonical, text(lambda t: t[: len(t) // 2])),
    Attack("P2", "another node's request after it", PemBlocksUnexpected, smuggled),
    Attack("P2", "another node's request before", PemBlocksUnexpected, smuggled_first),
    Attack("P2", "request alone", PemBlocksUnexpected, blocks(lambda b: b[:1])),
    Attack("P2", "no data", PemBlocksUnexpected, blocks(lambda b: b[:2])),
    Attack("P2", "no provider", PemBlocksUnexpected, blocks(lambda b: [b[0], b[2]])),
    Attack("P2", "data twice", PemBlocksUnexpected, blocks(lambda b: [*b, b[2]])),
    Attack("P2", "provider twice", PemBlocksUnexpected, blocks(lambda b: [b[0], b[1], *b[1:]])),
    Attack(
        "P2",
        "tens of thousands of blocks",
        PemBlocksUnexpected,
        blocks(lambda _: [("A", b"")] * 40_000),
    ),
    Attack("P2", "all of it twice", PemBlocksUnexpected, blocks(lambda b: b * 2)),
    Attack("P2", "attestation first", PemBlocksUnexpected, blocks(lambda b: [b[1], b[2], b[0]])),
    Attack("P2", "data before provider", PemBlocksUnexpected, blocks(lambda b: [b[0], b[2], b[1]])),
    Attack(
        "P2",
        "a certificate in addition",
        PemBlocksUnexpected,
        blocks(lambda b: [*b, ("CERTIFICATE", b"")]),
    ),
    Attack(
        "P2", "label of old requests", PemBlocksUnexpected, relabelled("NEW CERTIFICATE REQUEST", 0)
    ),
    Attack("P2", "label of certificates", PemBlocksUnexpected, relabelled("CERTIFICATE", 0)),
    Attack(
        "P2", "the proposal's example label", PemBlocksUnexpected, relabelled("ATTESTATION DATA", 2)
    ),
    Attack("P2", "data as provider", PemBlocksUnexpected, relabelled(PEM_DATA, 1)),
    Attack("P2", "no provider named", ProviderUnknown, provider(b"")),
    Attack("P2", "provider with line feed", ProviderUnknown, provider(b"tpm\n")),
    Attack("P2", "provider in capitals", ProviderUnknown, provider(b"TPM")),
    Attack("P2", "provider of a cloud", ProviderUnknown, provider(b"aws")),
    Attack("P2", "unknown provider", ProviderUnknown, provider(b"none")),
    Attack("P2", "provider with NUL", ProviderUnknown, provider(b"tpm\0")),
]


def test_the_good_case_passes() -> None:
    assert_issued(Scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
