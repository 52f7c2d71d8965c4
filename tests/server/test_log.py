"""The server's log: one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys

from argosy.server.log import JsonLines


def record(event: str, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "argosy.server", "msg": event, "levelno": 20})
    made.levelname = "INFO"
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_fields_are_kept_as_fields() -> None:
    told = json.loads(JsonLines().format(record("lease-held", group="g1-1", attempt=2)))
    assert told["event"] == "lease-held"
    assert told["logger"] == "argosy.server"
    assert told["level"] == "info"
    assert (told["group"], told["attempt"]) == ("g1-1", 2)


def test_a_record_is_one_line_whatever_it_holds() -> None:
    text = JsonLines().format(record("odd", value="a\nb", other={1, 2}, path=b"\xff"))
    assert "\n" not in text
    assert json.loads(text)["value"] == "a\nb"


def test_a_trace_is_a_field() -> None:
    made = record("failed")
    try:
        raise ValueError("no")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "ValueError: no" in json.loads(JsonLines().format(made))["trace"]
