"""Tables, documents and durations."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from signer.operator_cli.output import (
    Column,
    Document,
    age,
    duration,
    field,
    render_document,
    render_list,
    time_text,
)

COLUMNS = (Column("NAME", field("name")), Column("KEY", field("key"), wide=True))
DOCUMENTS: list[Document] = [{"name": "node-1", "key": "ab"}, {"name": None, "key": ["x", "y"]}]


def test_table_shows_wide_columns_only_on_request() -> None:
    assert render_list(DOCUMENTS, COLUMNS, "table") == "NAME\nnode-1\n-\n"
    assert render_list(DOCUMENTS, COLUMNS, "wide") == "NAME     KEY\nnode-1   ab\n-        x, y\n"


def test_long_text_has_its_own_line_below_the_row() -> None:
    """A row of `doctor` had more than 200 columns."""
    columns = (Column("NAME", field("name")), Column("NEXT-STEP", field("step"), below=True))
    documents: list[Document] = [{"name": "a", "step": ""}, {"name": "b\n", "step": "restart\nit"}]
    assert render_list(documents, columns, "table") == (
        "NAME\na\nb\\n\n  next step: restart\\nit\n"
    )
    assert render_list(documents, columns, "wide") == (
        "NAME   NEXT-STEP\na      -\nb\\n    restart\\nit\n"
    )


def test_json_and_yaml_hold_the_whole_documents() -> None:
    assert json.loads(render_list(DOCUMENTS, COLUMNS, "json")) == {"items": DOCUMENTS}
    assert yaml.safe_load(render_list(DOCUMENTS, COLUMNS, "yaml")) == {"items": DOCUMENTS}


def test_pem_is_a_block_in_yaml() -> None:
    """It was one quoted line with the escapes of its line breaks."""
    pem = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"
    text = render_document({"publicKey": pem}, "yaml")
    assert text.splitlines()[:2] == ["publicKey: |", "  -----BEGIN PUBLIC KEY-----"]
    assert yaml.safe_load(text) == {"publicKey": pem}


def test_keys_are_words_for_a_terminal_and_states_stay() -> None:
    """`status` showed names of JSON, such as certificatesExpiringWithin24h."""
    document = {
        "providerID": "x",
        "expiringWithin24h": 1,
        "nodes": {"heldByNode": 2, "MachineGone": 3},
        "all": True,
        "seen": None,
    }
    assert render_document(document, "table") == (
        "provider ID:         x\n"
        "expiring within 24h: 1\n"
        "nodes:               2 held by node, 3 MachineGone\n"
        "all:                 yes\n"
        "seen:                -\n"
    )


def test_control_characters_never_reach_the_terminal() -> None:
    """A node chooses its name in a request, and a tenant its API server's messages."""
    document = {"name": "a\x1b]0;owned\x07\r\nb\u202e", "key": ""}
    for text in (render_list([document], COLUMNS, "table"), render_document(document, "table")):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert "a\\x1b]0;owned\\x07\\r\\nb\\u202e" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (3661, "1h1m"), (3601, "1h"), (200_000, "2d7h")],
)
def test_duration_has_two_units(seconds: int, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


def test_age_is_negative_for_a_time_that_has_passed_its_end() -> None:
    now = datetime(2026, 11, 22, 12, tzinfo=UTC)
    assert age("2026-11-22T11:00:00Z", now) == "1h"
    assert age("2026-11-22T12:05:00Z", now) == "-5m"
    assert age(None, now) is None
    assert time_text(now) == "2026-11-22T12:00:00Z"
