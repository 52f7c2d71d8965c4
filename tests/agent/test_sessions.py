"""What one stream does: logs, exec, put, get, forward, chaos; and what the control stream shows of
health.
"""

from __future__ import annotations

import base64
import os
import select
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from argosy.agent.child import LIVING
from argosy.agent.door.sessions import Get
from argosy.agent.link import Stream
from argosy.agent.loop import Loop
from tests.agent.rig import Agent, Wire, eventually, exists, marked

SERVE = "exec /usr/bin/env python3 -u -m http.server {port} --bind {address}"


def data_of(lines: list[dict], key: str = "data") -> bytes:
    return b"".join(base64.b64decode(line[key]) for line in lines if key in line)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- logs ---------------------------------------------------------------------------------------


def test_logs_by_tail_offset_time_and_pattern(agent: Agent) -> None:
    agent.run("A", "echo one; echo two; sleep 0.01; printf 'th\\xffree\\r50%%\\rdone'")
    agent.end("A")
    whole = b"one\ntwo\nth\xffree\r50%\rdone"
    assert agent.log("A") == whole
    assert agent.log("A", tail=2) == b"two\nth\xffree\r50%\rdone"
    assert agent.log("A", offset=4, max_bytes=3) == b"two"
    assert agent.log("A", grep="^t") == b"two\nth\xffree\r50%\rdone"
    assert agent.log("A", since=0.0) == whole
    assert agent.log("A", since=time.time() + 9) == b""
    assert whole.startswith(agent.log("A", until=1.0))  # to the end of the first read at most
    assert agent.ask(op="logs", attempt=agent.id("A"))[-1] == {"end": len(whole)}
    assert agent.ask(op="logs", attempt=agent.id("A"), grep="(")[0]["code"] == "agent/bad-grep"
    assert agent.ask(op="logs", attempt="no such")[0]["error"] == "NotFound"


def test_follow_ends_with_the_attempt(agent: Agent, folder: Path) -> None:
    wait = f"while [ ! -e {folder}/go ]; do sleep 0.02; done"
    agent.run("A", f"echo early; {wait}; for i in $(seq 20000); do echo line $i; done")
    wire = Wire(agent.home, {"op": "logs", "attempt": agent.id("A"), "follow": True})
    first = wire.line()
    assert first is not None
    assert base64.b64decode(first["data"]) == b"early\n"
    (folder / "go").touch()
    lines = wire.rest()
    wire.close()
    expected = b"".join(b"line %d\n" % number for number in range(1, 20001))
    assert data_of(lines) == expected
    assert lines[-1] == {"end": len(expected) + 6}


def test_megabyte_line_is_found_whole(agent: Agent) -> None:
    agent.run("A", "echo start; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end")
    agent.end("A")
    assert agent.log("A", grep="xxx") == b"x" * 1_000_000 + b"\n"
    assert agent.log("A", grep="^x{65536}$") == b"x" * 1_000_000 + b"\n"  # no more is looked at


def test_truncated_and_capped_logs_are_events(agent: Agent, folder: Path) -> None:
    wait = f"while [ ! -e {folder}/go ]; do sleep 0.02; done"
    agent.run("A", f"echo before; {wait}; echo again > /dev/stderr; sleep 1000")
    eventually(lambda: agent.log("A") == b"before\n")
    (folder / "go").touch()
    agent.until(lambda: any(event["code"] == "log-truncated" for event in agent.events))
    big = "for i in $(seq 30); do head -c 1000000 /dev/zero; sleep 0.1; done; sleep 1000"
    agent.run("B", big, lease="L2", log_cap_bytes=1 << 20)
    agent.until(lambda: any(event["code"] == "log-capped" for event in agent.events))
    lines = agent.ask(op="logs", attempt=agent.id("B"))
    assert lines[0]["gap"][0] == 0


# -- exec ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["host", "isolated"])
def test_exec_runs_where_the_attempt_does(agent: Agent, network: str) -> None:
    agent.run("A", "export LATER=1; sleep 1000", env={"MINE": "5"}, network=network)
    argv = ["/bin/sh", "-c", "echo $MINE $LATER; pwd; hostname; echo err >&2; exit 7"]
    lines = agent.ask(op="exec", attempt=agent.id("A"), argv=argv, stdin=False)
    work = os.fsencode(agent.home / "work")
    out = data_of(lines, "stdout").splitlines()
    assert out[0] == b"5"
    assert out[1].startswith(work)
    assert out[2] == b"a-0.g"
    assert data_of(lines, "stderr") == b"err\n"
    assert lines[-1] == {"exit_code": 7}


def test_exec_passes_input_signals_and_their_ends(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    wire = Wire(agent.home, {"op": "exec", "attempt": agent.id("A"), "argv": ["cat"]})
    payload = os.urandom(300_000)
    for start in range(0, len(payload), 50_000):
        wire.send({"stdin": encoded(payload[start : start + 50_000])})
    wire.send({"stdin_end": True})
    lines = wire.rest()
    wire.close()
    assert data_of(lines, "stdout") == payload
    assert lines[-1] == {"exit_code": 0}
    wire = Wire(agent.home, {"op": "exec", "attempt": agent.id("A"), "argv": ["sleep", "1000"]})
    wire.send({"signal": signal.SIGTERM})
    assert wire.rest()[-1] == {"signal": signal.SIGTERM}
    wire.close()


def test_a_terminal_of_any_size_is_brought_into_bounds(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    for rows, cols, size in ((70_000, 1 << 40, b"1000 1000"), (-5, 80, b"1 80")):
        lines = agent.ask(
            op="exec", attempt=agent.id("A"), argv=["stty", "size"], tty=True, rows=rows, cols=cols
        )
        assert data_of(lines, "stdout").split() == size.split()
        assert lines[-1] == {"exit_code": 0}


def test_exec_with_a_terminal(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    argv = ["/bin/sh", "-c", "tty; stty size; read line; stty size; echo got $line; exit 3"]
    wire = Wire(
        agent.home,
        {"op": "exec", "attempt": agent.id("A"), "argv": argv, "tty": True, "rows": 30, "cols": 99},
    )
    seen = b""
    while b"30 99" not in seen:
        line = wire.line()
        assert line is not None
        seen += base64.b64decode(line["stdout"])
    assert b"/dev/pts/" in seen
    wire.send({"resize": [31, 77]})
    wire.send({"stdin": encoded(b"word\n")})
    lines = wire.rest()
    wire.close()
    out = data_of(lines, "stdout")
    assert b"31 77" in out
    assert b"got word" in out
    assert lines[-1] == {"exit_code": 3}


def test_exec_ends_with_its_client_and_with_the_attempt(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    sleep = [
        "/bin/sh",
        "-c",
        "trap '' HUP TERM; (setsid sleep 1001 &); echo up; sleep 1002; sleep 1003",
    ]
    wires = []
    for _ in range(2):
        wire = Wire(agent.home, {"op": "exec", "attempt": agent.id("A"), "argv": sleep})
        assert wire.line() == {"stdout": encoded(b"up\n")}
        wires.append(wire)

    def shells() -> list[int]:  # one that has just forked shows twice
        found = [pid for pid, command in marked(agent.id("A")).items() if "trap" in command]
        return found if len(found) == 2 else []

    guests = eventually(shells)
    wires[0].close()
    eventually(lambda: sum(exists(pid) for pid in guests) == 1)
    assert agent.stop("A")[0] == "stopped"
    assert not marked(agent.id("A"))
    wires[1].rest()
    wires[1].close()


def test_exec_does_not_wait_for_who_still_holds_its_pipes(agent: Agent) -> None:
    agent.run("A", "sleep 1000")
    argv = ["/bin/sh", "-c", "sleep 1001 & echo done"]
    lines = agent.ask(op="exec", attempt=agent.id("A"), argv=argv, stdin=False)
    assert (data_of(lines, "stdout"), lines[-1]) == (b"done\n", {"exit_code": 0})
    agent.stop("A")


def test_exec_waits_aside_for_a_program_that_enters_its_namespaces(agent: Agent) -> None:
    """One that has the name of those who are on their way, for ever: it is not waited for long."""
    agent.run("A", "printf argosy-attempt > /proc/$$/comm; echo named; read x < <(sleep 1000)")
    eventually(lambda: agent.log("A") == b"named\n")
    wire = Wire(agent.home, {"op": "exec", "attempt": agent.id("A"), "argv": ["cat"]})
    wire.send({"stdin": encoded(b"early")})
    wire.send({"stdin_end": True})
    lines = wire.rest()
    wire.close()
    assert (data_of(lines, "stdout"), lines[-1]) == (b"early", {"exit_code": 0})


def test_exec_says_why_it_cannot(agent: Agent) -> None:
    agent.assign(("A", 20), run="true")
    agent.stage("A", 20)
    answer = agent.ask(op="exec", attempt=agent.id("A"), argv=["true"])
    assert (answer[0]["error"], answer[0]["code"]) == ("Conflict", "agent/not-running")
    agent.run("B", "sleep 1000", lease="L2")
    lines = agent.ask(op="exec", attempt=agent.id("B"), argv=["no-such-command"])
    assert lines[-1] == {"exit_code": 127}
    assert b"no-such-command" in data_of(lines, "stderr")


# -- files and ports ----------------------------------------------------------------------------


def test_put_and_get_files_and_folders(agent: Agent, folder: Path) -> None:
    agent.run("A", "while [ ! -e in/x ]; do sleep 0.02; done; cat in/x > out; sleep 1000")
    payload = os.urandom(200_000)
    wire = Wire(agent.home, {"op": "put", "attempt": agent.id("A"), "path": "in/x", "mode": 0o600})
    wire.send({"data": encoded(payload[:100_000])})
    wire.send({"data": encoded(payload[100_000:])})
    wire.send({"end": True})
    assert wire.rest() == [{"ok": True}]
    wire.close()

    def get(path: str) -> list[dict]:
        return agent.ask(op="get", attempt=agent.id("A"), path=path)

    eventually(lambda: data_of(get("out")) == payload)
    assert get("in/x")[-1] == {"end": True, "mode": 0o600}
    assert get("nothing")[0]["error"] == "NotFound"
    archive = get("in")
    assert archive[0] == {"tar": True}
    tar = data_of(archive)
    wire = Wire(agent.home, {"op": "put", "attempt": agent.id("A"), "path": "copy", "tar": True})
    wire.send({"data": encoded(tar)})
    wire.send({"end": True})
    assert wire.rest() == [{"ok": True}]
    wire.close()
    assert data_of(get("copy/x")) == payload
    for tar in (True, False):  # an upload that was cut off leaves nothing
        path = f"cut-{tar}"
        wire = Wire(agent.home, {"op": "put", "attempt": agent.id("A"), "path": path, "tar": tar})
        wire.send({"data": encoded(payload)})
        eventually(lambda path=path: data_of(get(path + ".argosy-part")))
        wire.close()
        eventually(lambda path=path: "error" in get(path + ".argosy-part")[0])


@pytest.mark.parametrize("network", ["host", "isolated"])
def test_forward_reaches_a_port_of_the_node(agent: Agent, network: str) -> None:
    code = (
        "import socket, os; s = socket.create_server((os.environ['ARGOSY_NODE_IPS'], 8123));"
        "print('up', flush=True)\n"
        "while True:\n"
        "  c = s.accept()[0]; d = b''\n"
        "  while True:\n"
        "    p = c.recv(65536)\n"
        "    if not p: break\n"
        "    d += p\n"
        "  c.sendall(d[::-1]); c.close()\n"
    )
    agent.run("A", f'{agent.python} -I -S -c "{code}"', network=network)
    eventually(lambda: agent.log("A") == b"up\n")
    wire = Wire(agent.home, {"op": "forward", "attempt": agent.id("A"), "port": 8123})
    assert wire.line() == {"ok": True}
    payload = os.urandom(500_000)
    wire.sock.sendall(payload)
    wire.sock.shutdown(1)
    assert wire.file.read() == payload[::-1]
    wire.close()
    refused = agent.ask(op="forward", attempt=agent.id("A"), port=8124)
    assert refused[0]["error"] == "Unreachable"


def test_a_port_that_does_not_answer_holds_up_nobody(agent: Agent) -> None:
    code = (
        "import socket, os, time; a = (os.environ['ARGOSY_NODE_IPS'], 8125)\n"
        "s = socket.create_server(a, backlog=0); full = []\n"
        "for _ in range(3):\n"  # nobody accepts, so what comes later gets no answer at all
        "  c = socket.socket(); c.settimeout(0.3); full.append(c)\n"
        "  try: c.connect(a)\n"
        "  except OSError: pass\n"
        "print('full', flush=True); time.sleep(1000)\n"
    )
    agent.run("A", f'{agent.python} -I -S -c "{code}"')
    eventually(lambda: agent.log("A") == b"full\n")
    wire = Wire(agent.home, {"op": "forward", "attempt": agent.id("A"), "port": 8125})
    wire.sock.sendall(b"early")
    assert agent.status()["pid"] == agent.pid
    assert not select.select([wire.sock], [], [], 0)[0], "the agent answered it first"
    assert wire.rest()[0]["code"] == "agent/cannot-connect"
    wire.close()


def test_what_is_sent_before_the_connection_is_there_arrives(agent: Agent) -> None:
    code = (
        "import socket, os; s = socket.create_server((os.environ['ARGOSY_NODE_IPS'], 8126));"
        "print('up', flush=True); c = s.accept()[0]; d = b''\n"
        "while len(d) < 200000: d += c.recv(65536)\n"
        "c.sendall(d[::-1]); c.close()\n"
    )
    agent.run("A", f'{agent.python} -I -S -c "{code}"')
    eventually(lambda: agent.log("A") == b"up\n")
    wire = Wire(agent.home, {"op": "forward", "attempt": agent.id("A"), "port": 8126})
    payload = os.urandom(200_000)
    wire.sock.sendall(payload)
    assert wire.line() == {"ok": True}
    assert wire.file.read() == payload[::-1]
    wire.close()


def test_a_connection_ends_with_its_client(agent: Agent, folder: Path) -> None:
    """Also one whose other side only talks, and never listens."""
    code = (
        "import socket, os; s = socket.create_server((os.environ['ARGOSY_NODE_IPS'], 8127));"
        "print('up', flush=True); c = s.accept()[0]\n"
        "try:\n"
        "  while True: c.sendall(b'x' * 65536)\n"
        "except OSError: print('gone', flush=True)\n"
    )
    agent.run("A", f'{agent.python} -I -S -c "{code}"')
    eventually(lambda: agent.log("A") == b"up\n")
    wire = Wire(agent.home, {"op": "forward", "attempt": agent.id("A"), "port": 8127})
    assert wire.line() == {"ok": True}
    wire.close()
    eventually(lambda: agent.log("A") == b"up\ngone\n", "the program hears of it")


def test_what_is_no_file_is_not_read(agent: Agent) -> None:
    """To open a pipe would hold up the agent, and so everybody."""
    agent.run("A", "mkfifo pipe; touch made; sleep 1000")

    def get(path: str) -> list[dict]:
        return agent.ask(op="get", attempt=agent.id("A"), path=path)

    eventually(lambda: "error" not in get("made")[0])
    for path in ("pipe", "/dev/zero"):
        (refused,) = get(path)
        assert (refused["error"], "is no file" in refused["text"]) == ("InputError", True)


def test_a_folder_whose_client_has_gone_is_not_read(tmp_path: Path) -> None:
    """All of it would be read in one go, and hold up everybody."""
    (tmp_path / "large").mkdir()
    loop = Loop()
    ours, client = socket.socketpair()
    place = SimpleNamespace(loop=loop, user=SimpleNamespace(home=str(tmp_path)))
    attempt = SimpleNamespace(
        id="A", folder=str(tmp_path), record={"work": str(tmp_path)}, place=place
    )
    host = SimpleNamespace(attempts={"A": attempt}, place=place)
    stream = Stream(loop, ours)
    got = Get(host, stream, {"attempt": "A", "path": "large"})  # type: ignore[arg-type]
    client.close()
    eventually(lambda: loop.once(0.01) or (stream.ended and not LIVING))
    assert not hasattr(got, "_file")
    assert not list(tmp_path.glob("get-*.tar"))
    loop.close()


# -- chaos and health ---------------------------------------------------------------------------


def test_chaos_kills_freezes_and_thaws(agent: Agent, folder: Path) -> None:
    agent.run("A", f"while :; do date +%s%N > {folder}/beat; sleep 0.02; done")
    beat = folder / "beat"
    eventually(beat.exists)
    assert agent.ask(op="chaos", attempt=agent.id("A"), what="freeze") == [{"ok": True}]
    status = agent.status()["usage"][agent.id("A")]
    assert status["rss_bytes"] > 0
    pids = [pid for pid, command in marked(agent.id("A")).items() if "run.sh" in command]

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    assert pids
    eventually(lambda: all(state(pid) == "T" for pid in pids))
    before = beat.read_text()
    assert agent.ask(op="chaos", attempt=agent.id("A"), what="thaw") == [{"ok": True}]
    eventually(lambda: beat.read_text() not in ("", before))
    assert agent.ask(op="chaos", attempt=agent.id("A"), what="kill", signal=11) == [{"ok": True}]
    assert agent.end("A") == ("failed", None, 11, "signal")
    assert agent.ask(op="chaos", attempt=agent.id("A"), what="kill")[0]["error"] == "Conflict"


@pytest.mark.parametrize(
    "ready",
    [
        {"kind": "tcp", "port": 8124, "interval": 0.1, "failures": 2},
        {"kind": "http", "port": 8124, "path": "/", "interval": 0.1, "failures": 2},
        {"kind": "command", "text": "test -e marker", "interval": 0.1, "failures": 2},
    ],
)
def test_probe_shows_health_and_its_loss(agent: Agent, folder: Path, ready: dict) -> None:
    code = (
        "import http.server, os, time, threading\n"
        f"go = '{folder}/'\n"
        "while not os.path.exists(go + 'up'): time.sleep(0.02)\n"
        "open('marker', 'w').close()\n"
        "s = http.server.ThreadingHTTPServer((os.environ['ARGOSY_NODE_IPS'], 8124),"
        " http.server.SimpleHTTPRequestHandler)\n"
        "threading.Thread(target=s.serve_forever, daemon=True).start()\n"
        "while not os.path.exists(go + 'down'): time.sleep(0.02)\n"
        "os.unlink('marker'); s.shutdown(); s.server_close(); time.sleep(1000)\n"
    )
    (folder / "server.py").write_text(code)
    agent.run("A", f"{agent.python} {folder}/server.py", ready=ready)
    assert not agent.attempts[agent.id("A")]["healthy"]
    (folder / "up").touch()
    agent.until(lambda: agent.attempts[agent.id("A")]["healthy"])
    (folder / "down").touch()
    agent.until(lambda: not agent.attempts[agent.id("A")]["healthy"])
    assert agent.attempts[agent.id("A")]["stage"] == 30


def test_probe_by_a_line_of_the_log(agent: Agent, folder: Path) -> None:
    wait = f"while [ ! -e {folder}/go ]; do sleep 0.02; done"
    ready = {"log": "serving on [0-9]+"}
    agent.run("A", f"echo starting; {wait}; echo now serving on 80; sleep 1000", ready=ready)
    assert not agent.attempts[agent.id("A")]["healthy"]
    (folder / "go").touch()
    agent.until(lambda: agent.attempts[agent.id("A")]["healthy"])


def test_probe_of_a_long_log_goes_on_where_the_agent_was_killed(agent: Agent, folder: Path) -> None:
    wait = f"while [ ! -e {folder}/go ]; do sleep 0.02; done"
    run = f"{wait}; yes starting | head -n 400000; echo serving on 80; sleep 1000"
    agent.run("A", run, ready={"log": "serving on [0-9]+"})
    agent.kill()
    (folder / "go").touch()
    path = agent.home / "attempts" / agent.id("A") / "output"
    eventually(lambda: path.stat().st_size > 3_600_000 and b"on 80" in path.read_bytes()[-99:])
    agent.start()
    agent.until(lambda: agent.attempts[agent.id("A")]["healthy"])
