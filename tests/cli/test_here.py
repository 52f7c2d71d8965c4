"""Commands about this machine: offline ones, the server itself, completion, help."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from argosy.cli.main import SECTIONS, refuse_platform, run
from argosy.errors import InputError
from argosy.views.shapes import GroupRow, NodeView, Overview, TaskView
from tests.cli.typed import ARGOSY, argosy
from tests.sdk.answering import Answering, answering

FILE = "name: demo\nrun: echo hi\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    monkeypatch.setenv("ARGOSY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    nodes = (NodeView("trainer-0"), NodeView("trainer-1", 1))
    view = Overview("g1", "demo", tasks=(TaskView("trainer", nodes=nodes),))
    with answering(tmp_path / "home") as running:
        running.answers["GET /v1/server"] = {"pid": os.getpid(), "version": "0.1.0"}
        running.answers["GET /v1/groups/demo"] = asdict(view)
        yield running


def test_validate_and_schema_work_offline(tmp_path: Path) -> None:
    around = {"ARGOSY_HOME": str(tmp_path / "none")}
    (tmp_path / "g.yaml").write_text("name: x\nrunn: 1\n")
    done = argosy("validate", str(tmp_path / "g.yaml"), **around)
    assert done.returncode == 2
    assert "g.yaml:2:1\n" in done.stderr
    assert "did you mean `run`?" in done.stderr
    found = argosy("validate", str(tmp_path / "g.yaml"), "-o", "json", **around)
    assert json.loads(found.stdout)["errors"][0]["line"] == 2
    assert "$defs" in json.loads(argosy("schema", **around).stdout)
    assert not (tmp_path / "none").exists()


def test_validate_warns_of_what_only_a_launch_needs(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "g.yaml").write_text(
        "name: x\nworkdir: ./code\nfile_mounts:\n  /a: ./hidden-$KEY\n  /b: ./here\n"
        "  /c: {source: ./no, mode: COPY}\nsecrets: {API_KEY: null, KEY: hunter2}\nrun: x\n"
    )
    done = argosy("validate", str(tmp_path / "g.yaml"), "-o", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["valid"]) == (0, True)
    assert [(one["where"].rpartition("g.yaml:")[2], one["code"]) for one in found["warnings"]] == [
        ("7:11", "spec/missing-secret"),
        ("2:10", "file/missing"),
        ("4:3", "file/missing"),
        ("6:3", "file/missing"),
    ]
    assert str(tmp_path / "code") in found["warnings"][1]["text"]
    assert "hunter2" not in done.stdout


def test_init_writes_a_group_that_is_valid(tmp_path: Path) -> None:
    target = str(tmp_path / "My_group.yaml")
    assert argosy("init", target).returncode == 0
    done = argosy("validate", target)
    assert "valid: group my-group, 2 tasks, 2 nodes" in done.stdout
    assert done.stderr == ""
    assert argosy("init", target).returncode == 7
    assert argosy("init", target, "--force").returncode == 0


def test_init_from_a_task_keeps_its_text(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text("# mine\n---\nenvs: {A: null}\nrun: |\n  # keep\n  echo\n")
    target = tmp_path / "g.yaml"
    done = argosy("init", str(target), "--from", str(tmp_path / "task.yaml"))
    assert "named the task 'main'" in done.stderr
    assert "# mine" in target.read_text()
    assert "  # keep\n" in target.read_text()
    valid = argosy("validate", str(target), "--env", "A=1")
    assert "valid: group task, 1 task, 1 node" in valid.stdout


def test_init_from_a_group_says_that_it_is_one(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("name: a\n---\nname: b\nrun: echo\n")
    done = argosy("init", str(tmp_path / "g.yaml"), "--from", str(tmp_path / "t.yaml"))
    assert done.returncode == 2
    assert "is a group already" in done.stderr


def test_doctor_without_a_server_starts_none(tmp_path: Path) -> None:
    done = argosy("doctor", "-o", "json", ARGOSY_HOME=str(tmp_path / "none"))
    states = {one["what"]: one["state"] for one in json.loads(done.stdout)}
    assert (states["home"], states["server"]) == ("ok", "ok")
    assert not (tmp_path / "none").exists()


def test_doctor_finds_an_open_home_and_a_strange_version(server: Answering) -> None:
    server.home.chmod(0o755)
    server.answers["GET /v1/server"] = {"pid": 1, "version": "9.9"}
    server.answers["GET /v1/infra"] = {"infras": []}
    done = argosy("doctor")
    assert "hint: `chmod 700" in done.stdout
    assert "it is version 9.9" in done.stdout


LAUNCHER = "import ctypes; ctypes.CDLL(None).prctl(15, b'argosy-attempt', 0, 0, 0); "
# In one call: two processes say it at the same time.
WAITS = "import os, sys; os.write(1, b'up\\n'); sys.stdin.read()"


@pytest.mark.parametrize(
    ("code", "state", "text"),
    [
        (WAITS, "ok", "an agent with nothing to do runs"),
        (f"import os; os.fork() or exec({LAUNCHER!r}); {WAITS}", "ok", "nothing to do"),
        (LAUNCHER + WAITS, "warn", "no server watches them"),  # its parent is no agent
    ],
    ids=["agent", "agent and launcher", "wrapper"],
)
def test_doctor_minds_what_runs_and_not_an_idle_agent(
    tmp_path: Path, code: str, state: str, text: str
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(home / "agent")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        for _ in range(2 if "fork" in code else 1):
            assert process.stdout.readline() == b"up\n"
        done = argosy("doctor", "-o", "json", ARGOSY_HOME=str(home))
    finally:
        process.communicate()
    (left,) = [one for one in json.loads(done.stdout) if one["what"] == "left"]
    assert left["state"] == state
    assert text in left["text"]


def test_doctor_bundle_has_no_secrets(server: Answering, tmp_path: Path) -> None:
    import tarfile

    server.answers["GET /v1/infra"] = {"infras": []}
    (server.home / "server.log").write_text("ready\n")
    assert argosy("doctor", "--bundle", "r.tar.gz", MY_SECRET="hush").returncode in (0, 1)
    with tarfile.open(tmp_path / "r.tar.gz") as archive:
        parts = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]
    assert parts["argosy-report/server.log"] == b"ready"
    assert not any(b"hush" in data for data in parts.values())


def test_server_status_exits_8_when_none_runs(tmp_path: Path) -> None:
    done = argosy("server", "status", "-o", "json", ARGOSY_HOME=str(tmp_path / "none"))
    assert (done.returncode, json.loads(done.stdout)["running"]) == (8, False)
    assert argosy("server", "stop", ARGOSY_HOME=str(tmp_path / "none")).returncode == 0


def test_server_status_has_the_pid(server: Answering) -> None:
    found = json.loads(argosy("server", "status", "-o", "json").stdout)
    assert (found["pid"], found["running"]) == (os.getpid(), True)


def test_server_logs_show_the_end(server: Answering) -> None:
    (server.home / "server.log").write_text("".join(f"line {i}\n" for i in range(50)))
    assert argosy("server", "logs", "--tail", "2").stdout == "line 48\nline 49\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    assert "_ARGOSY_COMPLETE" in argosy("completion", shell).stdout


def test_completion_asks_the_server_and_starts_none(server: Answering, tmp_path: Path) -> None:
    def complete(words: str, **around: str) -> list[str]:
        done = argosy(
            _ARGOSY_COMPLETE="bash_complete", COMP_WORDS=words,
            COMP_CWORD=str(len(words.split()) - 1), **around,
        )  # fmt: skip
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    server.answers["GET /v1/groups"] = {"groups": [asdict(GroupRow("g1", "demo"))]}
    assert complete("argosy logs de") == ["demo"]
    assert complete("argosy logs demo/t") == ["demo/trainer"]
    assert complete("argosy logs demo/trainer/") == ["demo/trainer/0", "demo/trainer/1"]
    infras = {"pid": 1, "infras": ["kubernetes/prod", "local", "ssh/lab"]}
    server.answers["GET /v1/server"] = infras
    for words in ("launch f.yaml --infra", "infra check", "volumes create data --infra"):
        assert complete(f"argosy {words} kub") == ["kubernetes", "kubernetes/prod"]
    assert "launch" in complete("argosy la")
    nowhere = tmp_path / "none"
    assert complete("argosy logs de", ARGOSY_HOME=str(nowhere)) == []
    assert not nowhere.exists()


def test_every_command_has_help_and_is_listed() -> None:
    listing = argosy("--help").stdout
    for section in SECTIONS.values():
        for name in section:
            assert f"  {name} " in listing
            assert run([name, "--help"]) == 0


def test_listing_the_commands_imports_none_of_them() -> None:
    code = (
        "import sys; from argosy.cli.main import run; run(['--help']); "
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('yaml', 'rich', 'pydantic', 'http', 'websockets', 'asyncio') "
        "or m.startswith(('argosy.cli.commands', 'argosy.model', 'argosy.sdk'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_validate_imports_no_client_of_the_network(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(FILE)
    file = str(tmp_path / "g.yaml")
    code = (
        f"import sys; from argosy.cli.main import run; run(['validate', {file!r}]);"
        "print([m for m in sys.modules if m in ('http.client', 'asyncio', 'websockets', 'rich')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_wrong_command_and_option_exit_2_in_the_same_shape() -> None:
    done = argosy("staus")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: No such command 'staus'. Did you mean 'status'?",
    )
    assert argosy("status", "--nope").stderr.startswith("error: No such option")


@pytest.mark.parametrize(("platform", "name"), [("darwin", "macOS"), ("win32", "Windows")])
def test_other_platforms_are_refused_with_a_way_out(platform: str, name: str) -> None:
    with pytest.raises(InputError, match=name) as raised:
        refuse_platform(platform)
    assert "WSL2" in raised.value.hints[0]
    refuse_platform("linux")


def test_debug_shows_where_an_error_came_from(server: Answering) -> None:
    done = subprocess.run(
        [*ARGOSY, "status", "nope"], capture_output=True, text=True,
        env={**os.environ, "ARGOSY_DEBUG": "1"},
    )  # fmt: skip
    assert "Traceback" in done.stderr


def through_a_shell(line: str, **around: str) -> subprocess.CompletedProcess[str]:
    """What a user types, with what a shell makes of `>` and `<`."""
    command = f"{shlex.join(ARGOSY)} {line}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60.0,
        env={**os.environ, **around}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done


@pytest.mark.parametrize("line", ["--version", "schema", "server logs"])
def test_output_that_cannot_be_written_is_told(server: Answering, line: str) -> None:
    (server.home / "server.log").write_text("one line\n")
    done = through_a_shell(f"{line} > /dev/full")
    assert done.returncode == 6
    assert "error: not everything could be written: No space left on device\n" in done.stderr
    assert "70" not in done.stderr


def test_streams_that_are_closed_are_no_error(server: Answering, tmp_path: Path) -> None:
    file = tmp_path / "group.yaml"
    file.write_text("run: echo hi\n")
    assert through_a_shell(f"validate {file} >&- 2>&- <&-").returncode == 0
    assert through_a_shell("validate - <&-").returncode == 2
    server.answers["GET /v1/server"] = {"pid": 1}
    assert through_a_shell("server status >&-").returncode == 0


def test_init_from_a_task_with_a_date_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text("run: echo\nenvs: {DAY: 2020-99-99}\n")
    done = argosy("init", str(tmp_path / "g.yaml"), "--from", str(tmp_path / "task.yaml"))
    assert done.returncode == 0, done.stderr
    assert argosy("validate", str(tmp_path / "g.yaml")).returncode == 0
