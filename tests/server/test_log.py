"""The server's log: one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from argosy.server.log import JsonLines, log_to


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


def test_a_path_of_any_bytes_costs_no_line(tmp_path: Path) -> None:
    root, before = logging.getLogger(), list(logging.getLogger().handlers)
    level, raising = root.level, logging.raiseExceptions
    try:
        log_to(tmp_path / "server.log")
        logging.getLogger("argosy.server").warning("odd", extra={"path": "/data/\udcff"})
    finally:
        for handler in set(root.handlers) - set(before):
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)
        logging.raiseExceptions = raising
    (line,) = (tmp_path / "server.log").read_text().splitlines()
    assert json.loads(line)["path"] == "/data/\udcff"
