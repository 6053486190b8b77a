"""Hostile attestation data, which is the third PEM block, with valid requests."""

import json
from collections.abc import Callable
from typing import Any

from common.evidence import encode_attestation_data
from common.requests.csr import encode_request
from signer.kinds.csr import Csr
from tests.attacks.runner import Mutation
from tests.builders.scenario import Scenario

Document = dict[str, Any]


def answered(edit: Callable[[bytes], bytes]) -> Mutation:
    """Edit the bytes of a good answer."""

    def mutate(scenario: Scenario) -> Csr:
        good = encode_attestation_data(scenario.answer())
        edited = edit(good)
        assert edited != good
        return scenario.answer_csr(request=encode_request(scenario.pkcs10(), edited))

    return mutate


def offered(edit: Callable[[bytes], bytes]) -> Mutation:
    """Edit the bytes of a good offer."""

    def mutate(scenario: Scenario) -> Csr:
        good = encode_attestation_data(scenario.offer())
        edited = edit(good)
        assert edited != good
        return scenario.csr(encode_request(scenario.pkcs10(), edited))

    return mutate


def parsed(edit: Callable[[Document], object]) -> Callable[[bytes], bytes]:
    """Edit the JSON document in the bytes."""

    def edit_bytes(data: bytes) -> bytes:
        document = json.loads(data)
        edit(document)
        return json.dumps(document, separators=(",", ":")).encode()

    return edit_bytes


def member(*path: str, value: object) -> Callable[[bytes], bytes]:
    """Set a member."""

    def edit(document: Document) -> None:
        for name in path[:-1]:
            document = document[name]
        document[path[-1]] = value

    return parsed(edit)


def without(*path: str) -> Callable[[bytes], bytes]:
    """Omit a member."""

    def edit(document: Document) -> None:
        for name in path[:-1]:
            document = document[name]
        del document[path[-1]]

    return parsed(edit)


def raw(*path: str, value: str) -> Callable[[bytes], bytes]:
    """Set a member to text that no JSON writer generates."""
    placeholder = "placeholder for the raw text"

    def edit(data: bytes) -> bytes:
        document = member(*path, value=placeholder)(data)
        return document.replace(f'"{placeholder}"'.encode(), value.encode("utf-8", "surrogatepass"))

    return edit


def text_of(*path: str, change: Callable[[str], object]) -> Callable[[bytes], bytes]:
    """Change the text of a member."""

    def edit(document: Document) -> None:
        for name in path[:-1]:
            document = document[name]
        document[path[-1]] = change(document[path[-1]])

    return parsed(edit)
