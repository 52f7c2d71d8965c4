"""The client against a server with recorded answers."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from argosy.errors import AccessError, Broken, Conflict, InputErrors, NotFound, Place, Unreachable
from argosy.errors import InputError as OneError
from argosy.sdk import follow, wire
from argosy.sdk.client import Client, LogQuery
from argosy.views.shapes import NodeView, Overview, ReasonView, TaskView
from tests.sdk.answering import Answering, Refused, Stream, answering


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Answering]:
    with answering(tmp_path / "home") as running:
        yield running


@pytest.fixture
def client(server: Answering) -> Client:
    return Client(server.home, start=False, timeout=10.0)


def a_view(phase: str = "RUNNING", exit_code: int | None = None) -> Overview:
    tasks = (TaskView("trainer", nodes=(NodeView("trainer-0", phase=phase),)),)
    reasons = (ReasonView("queue", "", "behind", 1.0, 2.0),)
    return Overview("g1", "demo", phase, exit_code=exit_code, tasks=tasks, reasons=reasons)


def test_views_come_back_as_they_were_sent(client: Client, server: Answering) -> None:
    server.answers["GET /v1/groups/demo"] = asdict(a_view())
    assert client.group("demo") == a_view()


def test_unknown_and_missing_fields_are_no_trouble(client: Client, server: Answering) -> None:
    server.answers["GET /v1/groups/demo"] = {"name": "demo", "new": 1, "tasks": [{"later": 2}]}
    assert client.group("demo") == Overview(name="demo", tasks=(TaskView(),))


def test_names_and_queries_are_quoted(client: Client, server: Answering) -> None:
    server.answers["GET /v1/groups/a%2Fb%20c"] = asdict(a_view())
    client.group("a/b c")
    server.answers["GET /v1/groups/demo/logs"] = Stream([])
    list(client.logs("demo", LogQuery("t", 0, tail=0, grep="a&b", follow=True)))
    query, _ = server.asked("GET /v1/groups/demo/logs")
    assert query == {"task": "t", "index": "0", "tail": "0", "grep": "a&b", "follow": "1"}


@pytest.mark.parametrize("kind", [NotFound, Conflict, Broken])
def test_error_of_the_server_is_raised_as_its_class(
    client: Client, server: Answering, kind: type[NotFound]
) -> None:
    error = kind("no", code="x/y", hint=("do this", "or that"), place=Place("f", 3, 4, "text"))
    server.answers["GET /v1/groups/demo"] = Refused(409, error.fields())
    with pytest.raises(kind) as raised:
        client.group("demo")
    assert type(raised.value) is kind
    assert raised.value.fields() == error.fields()


def test_several_errors_of_a_file_are_raised_together(client: Client, server: Answering) -> None:
    errors = InputErrors((OneError("a", code="a"), OneError("b", code="b")))
    server.answers["POST /v1/plan"] = Refused(400, errors.fields())
    with pytest.raises(InputErrors) as raised:
        client.plan({"text": ""})
    assert [one.code for one in raised.value.errors] == ["a", "b"]


def test_answer_that_is_not_ours_is_told(client: Client) -> None:
    with pytest.raises(Broken, match="404"):
        client.group("demo")


def test_answer_that_is_not_json_is_told(client: Client, server: Answering) -> None:
    server.answers["GET /v1/server"] = b"hello"
    with pytest.raises(Broken, match="not JSON"):
        client.server()


def test_wait_that_runs_out_is_none(client: Client, server: Answering) -> None:
    server.answers["GET /v1/groups/demo/wait"] = Refused(408, asdict(a_view()))
    assert client.wait("demo", timeout=0.5) is None
    assert server.asked("GET /v1/groups/demo/wait")[0] == {"timeout": "0.5"}


def test_lines_are_put_together_whatever_the_pieces(client: Client, server: Answering) -> None:
    whole = b'{"seq":1,"at":1.5,"code":"a","about":"","text":"x"}\n{"seq":2,"at":2.5,"code":"b",'
    rest = [b'"about":"",', b'"text":"', b'y"}\n', b"\n"]
    server.answers["GET /v1/groups/demo/events"] = Stream([whole, *rest])
    assert [event.text for event in client.events("demo")] == ["x", "y"]


def test_error_in_the_middle_of_a_stream_is_raised(client: Client, server: Answering) -> None:
    line = {"seq": 1, "at": 1.0, "code": "a", "about": "", "text": "x"}
    server.answers["GET /v1/groups/demo/events"] = Stream([line, NotFound("gone").fields()])
    events = client.events("demo")
    assert next(events).seq == 1
    with pytest.raises(NotFound, match="gone"):
        next(events)


def test_stream_that_is_cut_off_is_unreachable(client: Client, server: Answering) -> None:
    server.answers["GET /v1/groups/demo/watch"] = Stream([asdict(a_view())], cut=True)
    views = client.watch("demo")
    next(views)
    with pytest.raises(Unreachable, match="cut off"):
        next(views)


def test_nobody_listens_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(wire.NoServer, match="no server runs"):
        Client(tmp_path / "nowhere", start=False).server()


def test_socket_that_nobody_serves_any_more_is_no_server(tmp_path: Path) -> None:
    with answering(tmp_path / "h"):
        pass
    (tmp_path / "h" / "server.sock").touch()
    with pytest.raises(wire.NoServer):
        Client(tmp_path / "h", start=False).server()


def test_server_of_somebody_else_is_an_access_error(tmp_path: Path) -> None:
    with answering(tmp_path / "h"):
        (tmp_path / "h" / "server.sock").chmod(0)
        before = os.geteuid()
        if before == 0:  # root may do all: be somebody else for the call
            os.seteuid(65534)
        try:
            with pytest.raises(AccessError, match="somebody else's"):
                Client(tmp_path / "h").server()
        finally:
            os.seteuid(before)


def test_home_with_a_long_path_is_reached(tmp_path: Path) -> None:
    home = tmp_path / ("d" * 100) / ("e" * 100)
    with answering(home) as server:
        server.answers["GET /v1/server"] = {"pid": 7}
        assert Client(home, start=False).server().pid == 7


def a_chunk(offset: int, data: bytes, **changes: object) -> dict[str, object]:
    text = base64.b64encode(data).decode()
    chunk = {"task": "t", "index": 0, "attempt": 1, "at": 1.0, "offset": offset, "data": text}
    return {**chunk, **changes}


def test_log_chunks_and_gaps(client: Client, server: Answering) -> None:
    gap = {"task": "t", "index": 0, "attempt": 1, "gap": [0, 100]}
    server.answers["GET /v1/groups/demo/logs"] = Stream([gap, a_chunk(100, b"\xff\n")])
    first, second = client.logs("demo", LogQuery())
    assert (first.gap, first.data) == (100, b"")
    assert (second.offset, second.data) == (100, b"\xff\n")


def test_followed_logs_go_on_after_a_restart_of_the_server(
    client: Client, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "STEP", 0.01)
    answers = iter(
        [
            Stream([a_chunk(0, b"one\n"), a_chunk(4, b"two\n")], cut=True),
            Stream([a_chunk(0, b"one\n"), a_chunk(4, b"two\nthree\n"), a_chunk(14, b"four\n")]),
        ]
    )
    server.answers["GET /v1/groups/demo/logs"] = lambda query: next(answers)
    server.answers["GET /v1/server"] = {"pid": 1}
    told: list[str] = []
    chunks = follow.logs(client, "demo", LogQuery(tail=5, follow=True), told.append)
    assert b"".join(chunk.data for chunk in chunks) == b"one\ntwo\nthree\nfour\n"
    assert len(told) == 2
    query, _ = server.asked("GET /v1/groups/demo/logs")
    assert "tail" not in query
    assert float(query["since"]) >= follow.OVERLAP


def test_followed_events_go_on_behind_the_last_one_seen(
    client: Client, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "STEP", 0.01)

    def events(query: dict[str, str]) -> Stream:
        since = int(query.get("since", 0))
        line = {"seq": since + 1, "at": 1.0, "code": "c", "about": "", "text": str(since)}
        return Stream([line], cut=since == 0)

    server.answers["GET /v1/groups/demo/events"] = events
    server.answers["GET /v1/server"] = {"pid": 1}
    found = follow.events(client, "demo", 0, lambda text: None)
    assert [event.seq for event in found] == [1, 2]


def test_watch_ends_with_the_group_though_its_stream_broke(
    client: Client, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "STEP", 0.01)
    answers = iter([Stream([asdict(a_view())]), Stream([asdict(a_view("SUCCEEDED", exit_code=0))])])
    server.answers["GET /v1/groups/demo/watch"] = lambda query: next(answers)
    phases = [view.phase for view in follow.watch(client, "demo", lambda text: None)]
    assert phases == ["RUNNING", "SUCCEEDED"]


def test_follower_gives_up_when_the_server_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "STEP", 0.01)
    monkeypatch.setattr(follow, "PATIENCE", 0.05)
    client = Client(tmp_path, start=False)
    with pytest.raises(Unreachable):
        list(follow.watch(client, "demo", lambda text: None))


@pytest.mark.parametrize(("code", "starts"), [("server/stopped", 0), ("server/cut-off", 1)])
def test_follower_replaces_a_server_that_was_killed_and_not_one_that_was_stopped(
    client: Client, server: Answering, monkeypatch: pytest.MonkeyPatch, code: str, starts: int
) -> None:
    monkeypatch.setattr(follow, "STEP", 0.01)
    started: list[Path] = []
    monkeypatch.setattr("argosy.sdk.start.ensure_server", started.append)
    said = {"error": "Unreachable", "code": code, "text": "it ended"}
    running, ended = asdict(a_view()), asdict(a_view("SUCCEEDED", exit_code=0))
    answers = iter([Stream([running, said]), Stream([ended])])
    server.answers["GET /v1/groups/demo/watch"] = lambda query: next(answers)
    list(follow.watch(Client(server.home), "demo", lambda text: None))
    assert len(started) == 1 + starts  # the first time is before anything was seen
