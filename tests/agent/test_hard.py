"""The whole agent under hard conditions: namespaces, full disks, large scripts, every Python there
is.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.rig import Agent, Wire, eventually, exists, marked
from tests.pythons import pythons

ESCAPES = (
    "(setsid sleep 1000 &); (env -i setsid /bin/sh -c 'trap \"\" TERM; sleep 1001; sleep 1002' &);"
    "echo up; sleep 1003"
)


@pytest.mark.parametrize("network", ["host", "isolated"])
def test_everything_ends_in_both_network_modes(agent: Agent, network: str) -> None:
    agent.run("A", ESCAPES, network=network)
    eventually(lambda: agent.log("A") == b"up\n")
    eventually(lambda: len(agent.processes("A")) >= 5)
    pids = agent.processes("A")
    ended = agent.stop("A", order={"grace": 0.2}, network=network)
    assert ended[:3] == ("stopped", None, 15)
    assert not any(exists(pid) for pid in pids[1:])
    eventually(lambda: not exists(pids[0]))  # the wrapper is just leaving


def test_what_a_killed_wrapper_of_a_node_with_cards_leaves_is_ended(
    new_agent: Callable[[], Agent],
) -> None:
    """Its PID namespace is the group's, and neither session nor mark show what has escaped."""
    agent = new_agent()
    agent.start("--capacity", '{"gpus": [{"index": 0, "name": "X", "memory_gib": 1}]}')
    cards = {"gpu_indices": [0]}
    run = f"cd /; {ESCAPES}"
    both = {"run": run, "network": "isolated", "each": [cards, {"gpu_indices": [1]}]}
    agent.assign(("A", 30), ("B", 30), **both)
    for name in ("A", "B"):
        agent.stage(name, 30)
        eventually(lambda name=name: agent.log(name) == b"up\n")
    aside = ["/bin/sh", "-c", "env -i setsid sleep 1004 >/dev/null 2>&1 &"]  # the holder's child
    agent.ask(op="exec", attempt=agent.id("B"), argv=aside, stdin=False)

    def whole(name: str) -> list[int]:
        found = agent.processes(name)
        return found if len(found) >= 6 else []

    wrapper, *rest = eventually(lambda: whole("A"))
    others = eventually(lambda: whole("B"))
    os.kill(wrapper, signal.SIGKILL)
    assert agent.end("A")[0] == "lost"
    assert [pid for pid in rest if exists(pid)] == []
    assert [pid for pid in others if not exists(pid)] == []
    assert agent.attempts[agent.id("B")]["stage"] == 30
    assert aside_of_b() != []
    agent.assign(("A", 50), ("B", 50), **both, order={"grace": 0.1})
    agent.end("B")
    eventually(lambda: not aside_of_b(), "what exec left ends with its attempt")


def aside_of_b() -> list[int]:
    """Living `sleep 1004`, which bears no mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == b"sleep\x001004\0":
                found.append(int(path.parent.name))
    return found


def test_isolated_attempt_survives_the_agent_and_keeps_its_exit_code(
    agent: Agent, folder: Path
) -> None:
    run = (
        f"echo $(hostname) $(hostname -i); while [ ! -e {folder}/go ]; do sleep 0.02; done; exit 8"
    )
    agent.run("A", run, network="isolated")
    eventually(lambda: agent.log("A"))
    address = agent.attempts[agent.id("A")]["address"]
    assert agent.log("A") == f"a-0.g {address}\n".encode()
    agent.kill()
    (folder / "go").touch()
    eventually(lambda: agent.exited("A"))
    agent.start()
    assert agent.end("A") == ("failed", 8, None, "exit")


def test_isolated_wrapper_killed_9_takes_everything_with_it(agent: Agent) -> None:
    agent.run("A", ESCAPES, network="isolated")
    eventually(lambda: len(agent.processes("A")) >= 5)
    pids = agent.processes("A")
    os.kill(pids[0], signal.SIGKILL)
    assert agent.end("A") == ("lost", None, None, "wrapper-vanished")
    eventually(lambda: not any(exists(pid) for pid in pids))


def test_killed_holder_of_the_network_is_replaced_for_the_next_attempt(agent: Agent) -> None:
    agent.run("A", "sleep 1000", network="isolated")
    holder = agent.status()["groups"][agent.word]["holder"]["pid"]
    os.kill(holder, signal.SIGKILL)
    assert agent.end("A") == ("lost", None, None, "wrapper-vanished")
    agent.run("B", "hostname", network="isolated")
    assert agent.end("B")[0] == "succeeded"
    assert agent.log("B") == b"a-0.g\n"


def test_two_agents_of_one_machine_share_a_groups_network(new_agent: Callable[[], Agent]) -> None:
    one, two = new_agent(), new_agent()
    one.start("--shared", str(one.home / "shared"))
    two.start("--shared", str(one.home / "shared"))
    code = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)"
    serve = f'{one.python} -c "{code}"'
    one.run("A", serve, network="isolated", ready={"tcp": 8000, "interval": 0.1})
    one.until(lambda: one.attempts[one.id("A")]["healthy"])
    first = one.attempts[one.id("A")]["address"]
    two.assign(("B0", 0), ("B", 30), lease="L2", network="isolated", run=fetch(two, first))
    assert two.end("B")[0] == "succeeded"
    assert two.attempts[two.id("B")]["address"] != first
    assert two.control is not None
    two.control.send({"op": "release", "lease": "L2"})
    two.until(lambda: not two.leases)
    assert one.status()["groups"][one.word]["mode"] == "isolated"
    assert one.attempts[one.id("A")]["healthy"]  # the network is still one's
    assert exists(one.status()["groups"][one.word]["holder"]["pid"])


def fetch(agent: Agent, address: str) -> str:
    code = f"import urllib.request as r; r.urlopen('http://{address}:8000/', timeout=30).read()"
    return f'{agent.python} -c "{code}"'


def fill_up(folder: Path) -> None:
    """Leave not a block of a file system, nor what an agent gives back that had just tried to
    reserve some.
    """
    unchanged = 0
    while unchanged < 5:
        before = os.statvfs(folder).f_bavail
        with contextlib.suppress(OSError), open(folder / "fill", "ab", buffering=0) as fill:
            while True:
                fill.write(b"x" * 4096)
        unchanged = 0 if before else unchanged + 1
        time.sleep(0.01)
    assert os.statvfs(folder).f_bavail == 0


def test_full_disk_under_the_agents_home(new_agent: Callable[[Path], Agent], folder: Path) -> None:
    """Everything of the agent on a tiny file system: exit codes arrive, the agent lives, and
    recovers.
    """
    if os.geteuid() != 0:
        pytest.fail("this test mounts a tmpfs: run it as root")
    home = folder / "tiny"
    home.mkdir()
    assert os.system(f"mount -t tmpfs -o size=3m {folder.name} {home}") == 0
    agent = None
    try:
        agent = new_agent(home)
        agent.start()
        agent.run("A", f"while [ ! -e {folder}/go ]; do sleep 0.02; done; exit 5")
        agent.run("B", "cat /dev/zero; echo full >&2; exit 6", lease="L2")
        assert agent.end("B") == ("failed", 6, None, "exit")
        fill_up(home)  # what the end of B has freed
        (folder / "go").touch()
        assert agent.end("A") == ("failed", 5, None, "exit")
        fill_up(home)  # and that of A
        agent.assign(("C", 30), run="true", lease="L3")
        assert agent.end("C")[3] in ("files-failed", "cannot-start", "network-failed")
        agent.kill()
        agent.start()
        assert agent.end("A") == ("failed", 5, None, "exit")
        assert agent.control is not None
        for lease in ("L1", "L2", "L3"):
            agent.control.send({"op": "release", "lease": lease})
        agent.until(lambda: not agent.leases)
        assert agent.ask(op="forget", group=agent.word) == [{"ok": True}]
        agent.run("D", "exit 0", lease="L4")
        assert agent.end("D")[0] == "succeeded"
    finally:
        if agent is not None:
            agent.close()
        # a child of the agent may still be trying out what works here
        eventually(lambda: os.system(f"umount {home} 2>/dev/null") == 0)


def test_long_scripts_and_large_environments(agent: Agent) -> None:
    script = (
        "".join(f"x{number}={'y' * 100}\n" for number in range(20_000)) + "echo ${#BIG} $x19999\n"
    )
    agent.run("A", script, env={"BIG": "z" * 120_000})
    assert agent.end("A")[0] == "succeeded"
    assert agent.log("A") == b"120000 " + b"y" * 100 + b"\n"
    agent.run("B", "true", lease="L2", env={"BIG": "z" * 200_000})
    assert agent.end("B") == ("failed", 127, None, "cannot-start")
    assert "Argument list too long" in agent.attempts[agent.id("B")]["text"]


def test_strict_scripts_stop_at_the_first_error(agent: Agent) -> None:
    agent.run("A", "false | true; echo on", strict=True)
    assert agent.end("A")[:2] == ("failed", 1)
    agent.run("B", "false | true; echo on; (exit 3)", lease="L2")
    assert agent.end("B")[:2] == ("failed", 3)
    assert agent.log("B") == b"on\n"


def test_program_gets_a_clean_environment_whoever_started_the_agent(agent: Agent) -> None:
    agent.run("A", "env; umask; ulimit -c; tty; ls -l /proc/self/fd | wc -l", env={"MINE": "1"})
    agent.end("A")
    text = agent.log("A").decode()
    names = set(re.findall(r"^([A-Za-z_]+)=", text, re.M))
    assert "LEAKS" not in names
    assert {"PATH", "HOME", "USER", "LANG", "PYTHONUNBUFFERED", "MINE", "ARGOSY_PEERS"} <= names
    assert {name for name in names if not name.startswith(("ARGOSY_", "SKYPILOT_"))} <= {
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "PYTHONUNBUFFERED", "PWD", "MINE",
        "SHLVL", "_",
    }  # fmt: skip
    assert text.splitlines()[-4] == "0022"
    assert text.splitlines()[-2:] == ["not a tty", "5"]  # 0, 1, 2, its own, and a line of total


def test_task_that_deletes_its_working_directory_can_start_again(
    agent: Agent, folder: Path
) -> None:
    (folder / "code").mkdir()
    (folder / "code" / "main.sh").write_text("echo here")
    run = "sh main.sh; rm -rf $PWD; exit 3"
    more = {"workdir": str(folder / "code"), "setup": "echo set up"}
    agent.run("A", run, **more)
    assert agent.end("A")[:2] == ("failed", 3)
    agent.run("B", run, **more)
    assert agent.end("B")[:2] == ("failed", 3)
    assert agent.log("A") == agent.log("B") == b"set up\nhere\n"


def test_missing_workdir_is_said(agent: Agent) -> None:
    agent.assign(("A", 30), run="true", workdir="/no/such/folder")
    assert agent.end("A") == ("failed", None, None, "files-failed")
    assert "/no/such/folder" in agent.attempts[agent.id("A")]["text"]


def test_peers_file_follows_the_address_book(agent: Agent) -> None:
    agent.assign(("A", 30), ("B", 30), run="sleep 1000", num_nodes=2)
    agent.stage("A", 30)
    agent.stage("B", 30)
    peers = agent.home / "attempts" / agent.id("A") / "peers.json"
    before = peers.read_text()
    entry = {"task": "a", "node": "a-1", "name": "a-1.g", "live": True, "healthy": True}
    book = {"version": 77, "nodes": [{**entry, "index": 1, "address": "10.9.9.9", "attempt": "x"}]}
    agent.assign(("A", 30), ("B", 30), run="sleep 1000", num_nodes=2, book=book)
    eventually(lambda: '"10.9.9.9"' in peers.read_text())
    assert peers.read_text() != before
    old = {**book, "version": 76, "nodes": []}
    agent.assign(("A", 30), ("B", 30), run="sleep 1000", num_nodes=2, book=old)
    agent.until(lambda: agent.leases["L1"]["serial"] == [1, 3])
    assert '"10.9.9.9"' in peers.read_text()


@pytest.mark.parametrize("version", pythons())
def test_every_python_here(version: str, pyz: Path, folder: Path, word: str) -> None:
    (folder / "home").mkdir()
    agent = Agent(version, pyz, folder / "home", word)
    try:
        agent.start()
        agent.run("A", "echo hi; exit 3")
        assert agent.end("A") == ("failed", 3, None, "exit")
        assert agent.log("A") == b"hi\n"
        lines = agent.ask(op="exec", attempt=agent.id("A"), argv=["true"])
        assert lines[0]["code"] == "agent/not-running"
    finally:
        agent.close()


def test_attach_joins_standard_input_and_output(agent: Agent) -> None:
    command = [agent.python, "-I", "-S", agent.pyz, "attach", "--home", agent.home]
    attached = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert attached.stdin is not None
    assert attached.stdout is not None
    attached.stdin.write(b'{"op": "status"}\n')
    attached.stdin.flush()
    assert b'"boot_id"' in attached.stdout.readline()
    assert attached.wait(60) == 0
    attached.stdin.close()
    attached.stdout.close()
    ends = subprocess.run(command, stdin=subprocess.DEVNULL, check=False, capture_output=True)
    assert ends.returncode == 0
    nowhere = [*command[:-1], agent.home / "attempts"]
    refused = subprocess.run(nowhere, stdin=subprocess.DEVNULL, check=False, capture_output=True)
    assert (refused.returncode, b"no agent answers" in refused.stderr) == (8, True)


def test_detached_agent_answers_when_its_starter_returns(
    pyz: Path, folder: Path, word: str
) -> None:
    command = [sys.executable, "-I", "-S", pyz, "run", "--home", folder, "--detach"]
    env = {"PATH": os.defpath, "ARGOSY_MARK": f"agent@{folder}"}
    assert subprocess.run(command, env=env, check=False).returncode == 0
    agent = Agent(sys.executable, pyz, folder, word)
    status = agent.status()
    assert os.getsid(status["pid"]) == status["pid"]
    os.kill(status["pid"], signal.SIGTERM)
    eventually(lambda: not marked(str(folder)))
    assert (folder / "agent.log").read_text() == ""


@pytest.mark.parametrize("network", ["host", "isolated"])
def test_balanced_name_reaches_healthy_nodes_only(agent: Agent, folder: Path, network: str) -> None:
    """Two servers and a client behind one name; one server turns unhealthy and gets no more."""
    server = folder / "server.py"
    server.write_text(
        "import http.server, os\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def log_message(self, *a): pass\n"
        "    def do_GET(self):\n"
        "        sick = self.path == '/ready' and os.path.exists('sick')\n"
        "        self.send_response(503 if sick else 200); self.end_headers()\n"
        "        self.wfile.write(os.environ['ARGOSY_NODE_RANK'].encode())\n"
        "own = os.environ['ARGOSY_NODE_IPS'].split()[int(os.environ['ARGOSY_NODE_RANK'])]\n"
        "http.server.ThreadingHTTPServer((own, 8125), H).serve_forever()\n"
    )
    run = f"exec {agent.python} {server}"
    ready = {"kind": "http", "port": 8125, "path": "/ready", "interval": 0.1, "failures": 2}
    nodes = [
        {
            "task": "a", "index": index, "node": f"a-{index}", "name": f"a-{index}.g",
            "address": "", "attempt": agent.id(name), "live": True, "healthy": False,
        }
        for index, name in enumerate("AB")
    ]  # fmt: skip
    balanced = [{"task": "a", "name": "a.g", "ports": [8125]}]
    book = {"version": 1, "nodes": nodes, "balanced": balanced}
    more = {"num_nodes": 2, "network": network, "ready": ready, "book": book, "balance": [8125]}
    agent.assign(("A", 30), ("B", 30), run=run, **more)
    for name in "AB":
        agent.stage(name, 30)
    agent.until(lambda: all(agent.attempts[agent.id(n)]["healthy"] for n in "AB"))

    code = "import urllib.request as r; print(r.urlopen('http://a.g:8125/', timeout=30).read())"

    def answers() -> set[bytes]:
        argv = ["/bin/sh", "-c", f'for i in 1 2 3 4; do {agent.python} -c "{code}"; done']
        lines = agent.ask(op="exec", attempt=agent.id("A"), argv=argv, stdin=False)
        assert lines[-1] == {"exit_code": 0}, lines
        out = b"".join(base64.b64decode(line["stdout"]) for line in lines if "stdout" in line)
        return set(out.split())

    assert answers() == {b"b'0'", b"b'1'"}
    wire = Wire(agent.home, {"op": "put", "attempt": agent.id("A"), "path": "sick"})
    wire.send({"end": True})
    assert wire.rest() == [{"ok": True}]
    wire.close()
    agent.until(lambda: not agent.attempts[agent.id("A")]["healthy"])
    assert answers() == {b"b'1'"}


@pytest.mark.parametrize("network", ["host", "isolated"])
def test_ordinary_user(pyz: Path, folder: Path, word: str, network: str) -> None:
    """Everything as a user without privileges: start, escape, stop, lose the wrapper, exec."""
    if os.geteuid() != 0:
        pytest.fail("this test becomes another user: run it as root")
    home = folder / "home"
    home.mkdir()
    folder.chmod(0o755)
    os.chown(home, 54323, 54323)
    own = folder / "agent.pyz"
    own.write_bytes(pyz.read_bytes())
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.fail("no Python that every user may execute: install Debian's python3")
    agent = Agent(python, own, home, word)
    # where a user may open the tun device, as udev has it
    become = (
        "mount -t tmpfs tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200 &&"
        ' exec setpriv --reuid 54323 --regid 54323 --clear-groups "$@"'
    )
    agent.prefix = ["unshare", "--mount", "sh", "-c", become, "sh"]
    try:
        agent.start()
        agent.run("A", ESCAPES, network=network)
        eventually(lambda: agent.log("A") == b"up\n")
        eventually(lambda: len(agent.processes("A")) >= 5)
        pids = agent.processes("A")
        argv = ["/bin/sh", "-c", "id -u; hostname"]
        lines = agent.ask(op="exec", attempt=agent.id("A"), argv=argv, stdin=False)
        out = b"".join(base64.b64decode(line["stdout"]) for line in lines if "stdout" in line)
        assert out == b"54323\na-0.g\n"
        assert agent.stop("A", order={"grace": 0.2}, network=network)[0] == "stopped"
        assert not any(exists(pid) for pid in pids[1:])
        agent.run("B", "sleep 1000", lease="L2", network=network)
        os.kill(agent.processes("B")[0], signal.SIGKILL)
        assert agent.end("B") == ("lost", None, None, "wrapper-vanished")
    finally:
        agent.close()


def test_release_while_the_network_is_being_built_leaves_nothing(agent: Agent) -> None:
    for number in range(4):
        agent.assign(("A", 30), lease=f"L{number}", run="true", network="isolated")
        assert agent.control is not None
        agent.control.send({"op": "release", "lease": f"L{number}"})
    agent.until(lambda: not agent.leases)
    agent.run("B", "hostname", lease="LB", network="isolated")
    assert agent.end("B")[0] == "succeeded"


def test_secrets_leave_the_journal_with_their_group(agent: Agent) -> None:
    journal = agent.home / "journal"
    agent.run("A", "sleep 1000", secrets={"TOKEN": "s3cr3t-word"})
    assert "s3cr3t-word" in journal.read_text()
    agent.assign(("A", 50))
    agent.end("A")
    assert agent.control is not None
    agent.control.send({"op": "release", "lease": "L1"})
    agent.until(lambda: not agent.leases)
    assert "s3cr3t-word" not in journal.read_text()


def test_agent_killed_before_it_left_a_group_leaves_it_later(agent: Agent) -> None:
    agent.run("A", "sleep 1000", network="isolated")
    holder = agent.status()["groups"][agent.word]["holder"]["pid"]
    agent.stop("A", network="isolated")
    agent.kill()
    with open(agent.home / "journal", "a") as journal:  # what it wrote last
        journal.write('["lease","L1",null]\n')
    agent.start()
    eventually(lambda: not exists(holder))
