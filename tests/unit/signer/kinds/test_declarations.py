"""Each kind is declared once: what is written, read and stored follows from the declaration."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from builders.crds import DEFINITIONS, render
from signer.kinds import attested_node, endorsement_key, key_request
from signer.kinds.record import Definition, Record, encode

CRDS: Final = Path(__file__).parents[4] / "packaging/signer/crds"
GOLDEN: Final = Path(__file__).parent / "golden"
READERS: Final[dict[str, Callable[[Any], Record]]] = {
    "AttestedNode": attested_node.read_attested_node,
    "EndorsementKey": endorsement_key.read_endorsement_key,
    "EndorsementKeyRequest": key_request.read_key_request,
}
all_kinds = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: d.resource.kind)


@all_kinds
def test_object_is_written_as_it_was_read(definition: Definition) -> None:
    """The files were written by encoders that were written by hand, with every field."""
    kind = definition.resource.kind
    body = json.loads((GOLDEN / f"{kind.lower()}.json").read_text(encoding="utf-8"))
    assert set(body["spec"]) == set(definition.spec.__struct_encode_fields__)
    read = READERS[kind](json.dumps(body).encode())
    body["spec"].pop("publicKey", None)  # the caches do not keep it
    assert encode(read, definition.spec) == body["spec"]


@all_kinds
def test_committed_crd_follows_from_the_declaration(definition: Definition) -> None:
    committed = (CRDS / f"{definition.resource.plural}.yaml").read_text(encoding="utf-8")
    assert committed == render(definition), "run `make manifests`"
