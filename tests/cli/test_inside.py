"""`exec`, `cp` and `forward` against a real websocket server that plays the node's part."""

from __future__ import annotations

import base64
import http
import io
import json
import os
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, unix_serve

from argosy.cli.main import run
from argosy.errors import Conflict
from argosy.views.shapes import NodeView, Overview, TaskView
from tests.cli.typed import ARGOSY, TIMEOUT, argosy

Play = Callable[[ServerConnection], None]


class Node:
    """What the other side of the next channel does, and what it was asked with."""

    def __init__(self) -> None:
        self.play: Play = lambda channel: None
        self.refuse: Conflict | None = None
        self.phase = "RUNNING"
        self.looks = 0  # how often somebody looked at the group
        self.asked: dict[str, str] = {}
        self.heard: list[Any] = []

    def serve(self, channel: ServerConnection) -> None:
        self.play(channel)

    def answer(self, channel: ServerConnection, request: Request) -> Response | None:
        parts = urlsplit(request.path)
        if parts.path in ("/v1/groups/demo", "/v1/groups/g1"):
            self.looks += 1
            nodes = (NodeView("trainer-0", phase=self.phase),)
            view = Overview("g1", "demo", tasks=(TaskView("trainer", nodes=nodes),))
            return self._json(http.HTTPStatus.OK, asdict(view))
        if parts.path == "/v1/server":
            return self._json(http.HTTPStatus.OK, {"pid": 1})
        self.asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if self.refuse is not None:
            return self._json(http.HTTPStatus.CONFLICT, self.refuse.fields())
        return None

    @staticmethod
    def _json(status: http.HTTPStatus, value: Any) -> Response:
        body = json.dumps(value).encode()
        headers = Headers({"Content-Length": str(len(body)), "Connection": "close"})
        return Response(status.value, status.phrase, headers, body)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("ARGOSY_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    playing = Node()
    before = Path.cwd()
    os.chdir(home)
    server: Server = unix_serve(playing.serve, "server.sock", process_request=playing.answer)
    os.chdir(before)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield playing
    server.shutdown()
    thread.join()


def tell(channel: ServerConnection, **message: Any) -> None:
    packed = {
        key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for key, value in message.items()
    }
    channel.send(json.dumps(packed))


def test_exec_gives_both_outputs_and_the_exit_code(node: Node) -> None:
    def play(channel: ServerConnection) -> None:
        node.heard.append(json.loads(channel.recv()))
        tell(channel, stdout=b"out\xff")
        tell(channel, stderr=b"err")
        tell(channel, exit_code=7)

    node.play = play
    done = subprocess.run(
        [*ARGOSY, "exec", "demo/trainer/0", "--", "ls", "-l"], capture_output=True,
        timeout=TIMEOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\xff", b"err")
    assert json.loads(node.asked["argv"]) == ["ls", "-l"]
    assert (node.asked["stdin"], node.asked["tty"]) == ("0", "0")
    assert node.heard == [{"stdin_end": True}]


def test_exec_passes_standard_input_on_to_its_end(node: Node) -> None:
    def play(channel: ServerConnection) -> None:
        while "stdin_end" not in (message := json.loads(channel.recv())):
            tell(channel, stdout=base64.b64decode(message["stdin"]).upper())
        tell(channel, exit_code=0)

    node.play = play
    assert argosy("exec", "-i", "demo", "cat", input="hello").stdout == "HELLO"


def test_exec_of_a_killed_program_exits_as_a_shell_does(node: Node) -> None:
    node.play = lambda channel: tell(channel, signal=9)
    assert argosy("exec", "demo/trainer", "--", "x").returncode == 137


def test_exec_that_is_cut_off_exits_8(node: Node) -> None:
    done = argosy("exec", "demo/trainer/0", "--", "x")
    assert done.returncode == 8
    assert "the stream ended before the command did" in done.stderr


def test_exec_where_nothing_runs_tells_what_the_server_says(node: Node) -> None:
    node.refuse = Conflict("trainer-0 does not run", hint="look at its log")
    done = argosy("exec", "demo/trainer/0", "--", "x")
    assert done.returncode == 7
    assert done.stderr == "error: trainer-0 does not run\nhint: look at its log\n"


def test_exec_without_a_command_or_a_terminal_says_what_to_write(node: Node) -> None:
    assert "exec demo -- env" in argosy("exec", "demo").stderr
    assert "-t needs a terminal" in argosy("exec", "-it", "demo").stderr


def received(node: Node, channel: ServerConnection) -> None:
    """Take a `put` to its end."""
    while True:
        message = json.loads(channel.recv())
        if message.get("end"):
            break
        node.heard.append(base64.b64decode(message["data"]))
    tell(channel, ok=True)


def test_cp_of_a_file_to_a_node(node: Node, tmp_path: Path) -> None:
    node.play = lambda channel: received(node, channel)
    (tmp_path / "f.sh").write_bytes(b"x" * 300_000)
    (tmp_path / "f.sh").chmod(0o750)
    assert argosy("cp", "f.sh", "demo/trainer/0:sub/").returncode == 0
    assert b"".join(node.heard) == b"x" * 300_000
    assert (node.asked["path"], node.asked["direction"]) == ("sub/f.sh", "put")
    assert int(node.asked["mode"]) == 0o750


def test_cp_of_a_folder_there_and_back(node: Node, tmp_path: Path) -> None:
    node.play = lambda channel: received(node, channel)
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "f").write_text("deep")
    assert argosy("cp", "d", "demo/trainer/0:d").returncode == 0
    assert node.asked["tar"] == "1"
    archive = b"".join(node.heard)

    def give(channel: ServerConnection) -> None:
        tell(channel, tar=True)
        for start in range(0, len(archive), 1000):
            tell(channel, data=archive[start : start + 1000])
        tell(channel, end=True, mode=0o755)

    node.play = give
    assert argosy("cp", "demo/trainer/0:d", "back").returncode == 0
    assert (tmp_path / "back" / "e" / "f").read_text() == "deep"


def test_cp_of_a_file_from_a_node_keeps_its_mode(node: Node, tmp_path: Path) -> None:
    def give(channel: ServerConnection) -> None:
        tell(channel, data=b"one")
        tell(channel, data=b"two")
        tell(channel, end=True, mode=0o640)

    node.play = give
    assert argosy("cp", "demo/trainer/0:a/b", ".").returncode == 0
    assert (tmp_path / "b").read_bytes() == b"onetwo"
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o640
    assert argosy("cp", "demo/trainer/0:a/b", "-").stdout == "onetwo"


def test_cp_of_a_missing_file_names_it_as_the_user_did(node: Node) -> None:
    told = "[Errno 2] No such file or directory: '/agent/a/1/sub/x'"
    node.play = lambda channel: tell(
        channel, error="NotFound", code="agent/cannot-get", text=told, hints=[]
    )
    done = argosy("cp", "demo/trainer/0:sub/x", ".")
    assert done.returncode == 3
    assert "there is no sub/x on demo/trainer/0" in done.stderr
    assert "`argosy exec demo/trainer/0 -- ls -la sub`" in done.stderr
    assert "/agent" not in done.stderr


def test_cp_that_breaks_off_leaves_nothing_behind(node: Node, tmp_path: Path) -> None:
    node.play = lambda channel: tell(channel, data=b"half")
    before = sorted(tmp_path.iterdir())
    done = argosy("cp", "demo/trainer/0:a/b", "b")
    assert (done.returncode, "cut off" in done.stderr) == (8, True)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("newer", [True, False])
def test_cp_of_a_folder_leaves_out_what_leads_out_of_it(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if not newer:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    source = tmp_path / "d"
    source.mkdir()
    (source / "f").write_text("kept")
    (source / "inside").symlink_to("f")
    (source / "python").symlink_to("/usr/bin/python3")
    (source / "up").symlink_to("../../etc")
    os.mkfifo(source / "pipe")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(source, ".")

    def give(channel: ServerConnection) -> None:
        tell(channel, tar=True)
        tell(channel, data=packed.getvalue())
        tell(channel, end=True, mode=0o755)

    node.play = give
    assert run(["cp", "demo/trainer/0:d", "back"]) == 0
    assert sorted(one.name for one in (tmp_path / "back").iterdir()) == ["f", "inside"]
    assert "left out 3 devices, and links that lead out" in capfd.readouterr().err


@pytest.mark.parametrize("newer", [True, False])
def test_cp_takes_no_file_that_is_to_lie_elsewhere(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: bool
) -> None:
    if not newer:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../evil"))

    def give(channel: ServerConnection) -> None:
        tell(channel, tar=True)
        tell(channel, data=packed.getvalue())
        tell(channel, end=True, mode=0o755)

    node.play = give
    assert run(["cp", "demo/trainer/0:d", "back"]) == 5
    assert not (tmp_path / "evil").exists()


def test_cp_into_a_folder_that_is_not_there(node: Node, tmp_path: Path) -> None:
    node.play = lambda channel: tell(channel, data=b"one", end=True)
    done = argosy("cp", "demo/trainer/0:a", str(tmp_path / "none" / "a"))
    assert done.returncode == 3
    assert f"there is no folder {tmp_path / 'none'}" in done.stderr


def test_cp_between_two_local_paths_is_refused(node: Node) -> None:
    done = argosy("cp", "a", "./b:c")
    assert done.returncode == 2
    assert "GROUP/TASK/I:PATH" in done.stderr


def test_forward_carries_a_connection_both_ways(node: Node) -> None:
    def play(channel: ServerConnection) -> None:
        heard = channel.recv()
        assert isinstance(heard, bytes)
        channel.send(b"re: " + heard)

    node.play = play
    process = subprocess.Popen(
        [*ARGOSY, "forward", "demo/trainer/0", "0:8000"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        port = int(line.partition(" -> ")[0].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as connection:
            connection.sendall(b"hello")
            connection.shutdown(socket.SHUT_WR)  # who has sent all may still read
            answer = b"".join(iter(lambda: connection.recv(100), b""))
    finally:
        process.kill()
        process.communicate()
    assert answer == b"re: hello"
    assert (node.asked["port"], node.asked["task"]) == ("8000", "trainer")


def test_forward_to_an_ended_node_is_refused_at_once(node: Node) -> None:
    node.phase = "SUCCEEDED"
    done = argosy("forward", "demo/trainer/0", "0:80")
    assert (done.returncode, "trainer-0 does not run" in done.stderr) == (7, True)


def test_forward_goes_on_over_a_replacement_and_ends_with_its_node(node: Node) -> None:
    process = subprocess.Popen(
        [*ARGOSY, "forward", "demo/trainer/0", "0:8000"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        process.stderr.readline()
        node.phase = "RECOVERING"
        looks = node.looks
        deadline = time.monotonic() + TIMEOUT
        while node.looks < looks + 2:  # it has seen that, and did not mind
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        node.phase = "FAILED"
        said = process.communicate(timeout=TIMEOUT)[1]
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == Conflict.exit_code
    assert "trainer-0 does not run: it has ended" in said


def test_forward_of_a_taken_port_names_a_way_out(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = argosy("forward", "demo/trainer/0", f"{port}:80")
    assert done.returncode == 2
    assert f"can't listen on 127.0.0.1:{port}" in done.stderr
    assert argosy("forward", "demo/trainer/0", "x").returncode == 2
