"""Single executions under a real launcher: everything that processes do to those who start them."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from argosy.agent.loop import Loop
from argosy.agent.processes import folder as folders
from argosy.agent.processes import tree
from argosy.agent.processes.execution import Execution, Launcher, Phase
from argosy.agent.processes.folder import Request
from argosy.agent.processes.layout import STATUS_BYTES
from argosy.agent.records import replace
from tests.agent.rig import DEADLINE, SOURCE, eventually, exists

CODE = (
    "import sys; sys.path.append(sys.argv[1]); sys.dont_write_bytecode = True;"
    "from agent.processes import launcher; launcher.run()"
)


class Bench:
    """A loop, a launcher, and executions in folders of their own."""

    def __init__(self, python: str, folder: Path, word: str) -> None:
        self.python, self.folder, self.word = python, folder, word
        self.loop = Loop(on_error=self.failed)
        self.errors: list[BaseException] = []
        self.launcher = self.new_launcher()
        self.made: list[Execution] = []

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)

    def new_launcher(self) -> Launcher:
        argv = [self.python, "-I", "-S", "-c", CODE, str(SOURCE.parent)]
        return Launcher(self.loop, argv, f"launcher-{self.word}")

    def request(self, *argv: str, env: dict[str, str] | None = None, **more: object) -> Request:
        path = {"PATH": os.environ["PATH"], "ARGOSY_MARK": self.word}
        output = str(self.folder / "output")
        return Request("/", {**path, **(env or {})}, list(argv), output, **more)  # type: ignore[arg-type]

    def execution(self, name: str = "x", keeps: bool = False) -> Execution:
        made = Execution(self.loop, self.launcher, str(self.folder / name), self.word, keeps)
        self.made.append(made)
        return made

    def start(self, *argv: str, name: str = "x", **more: object) -> Execution:
        made = self.execution(name)
        made.start(self.request(*argv, **more))  # type: ignore[arg-type]
        return made

    def bash(self, text: str, name: str = "x", **more: object) -> Execution:
        return self.start("/bin/bash", "-c", text, name=name, **more)

    def python_code(self, text: str, name: str = "x", **more: object) -> Execution:
        return self.start(self.python, "-I", "-S", "-c", text, name=name, **more)

    def until(self, holds: Callable[[], object], seconds: float = DEADLINE) -> None:
        end = self.loop.now() + seconds
        while not holds():
            assert self.loop.now() < end, "not in time"
            self.loop.once(0.02)
        assert not self.errors, self.errors

    def over(self, execution: Execution) -> str:
        """Wait for the end, in words."""
        self.until(lambda: execution.phase is Phase.OVER)
        if execution.never:
            return "never"
        return (
            "lost" if execution.exit is None else f"{execution.exit.kind} {execution.exit.number}"
        )

    def output(self) -> bytes:
        path = self.folder / "output"
        return path.read_bytes() if path.exists() else b""

    def close(self) -> None:
        for made in self.made:
            if made.phase is not Phase.OVER:
                made.stop(0)
        self.until(lambda: all(made.phase is Phase.OVER for made in self.made))
        self.launcher.close()
        self.loop.close()


@pytest.fixture
def bench(python: str, folder: Path, word: str) -> Iterator[Bench]:
    made = Bench(python, folder, word)
    yield made
    made.close()


def test_exact_exit_codes_and_signals(bench: Bench) -> None:
    made = {
        "exit 0": bench.bash("true", "a"),
        "exit 137": bench.bash("exit 137", "b"),
        "signal 9": bench.bash("kill -9 $$", "c"),
        "signal 13": bench.bash("kill -PIPE $$", "d"),
        "signal 11": bench.bash("ulimit -c 0; kill -SEGV $$", "e"),
        "exit 127": bench.start("/no/such/program", name="f"),
    }
    assert {bench.over(execution): 1 for execution in made.values()} == dict.fromkeys(made, 1)
    for words, execution in made.items():
        assert bench.over(execution) == words
    assert "No such file" in folders.read_failure(made["exit 127"].folder)


def test_same_folder_sent_20_times_runs_once(bench: Bench) -> None:
    first = bench.execution()
    request = bench.request("/bin/bash", "-c", "echo once; sleep 0.2")
    first.start(request)
    for _ in range(20):
        bench.launcher.ask(first.folder)
    other = bench.new_launcher()
    for _ in range(5):
        other.ask(first.folder)
    second = bench.execution()
    second.start(request)
    assert bench.over(first) == bench.over(second) == "exit 0"
    assert bench.output() == b"once\n"
    other.close()


def test_forbidden_execution_never_starts(bench: Bench) -> None:
    execution = bench.execution()
    folders.make(execution.folder, bench.request("/bin/echo", "ran"))
    execution.stop(1)
    assert bench.over(execution) == "never"
    bench.launcher.ask(execution.folder)
    after = bench.start("/bin/true", name="after")
    assert bench.over(after) == "exit 0"
    again = bench.execution()
    assert again.adopt(folders.boot_id())
    assert bench.over(again) == "never"
    assert bench.output() == b""


def test_forbidden_or_started_but_never_both(bench: Bench) -> None:
    bench.start("/bin/true", name="warm")
    for number in range(20):
        execution = bench.execution(name=f"race-{number}")
        folders.make(execution.folder, bench.request("/bin/echo", str(number)))
        bench.launcher.ask(execution.folder)
        never = folders.forbid(execution.folder)
        assert folders.forbid(execution.folder) is never
        assert execution.adopt(folders.boot_id())
        assert bench.over(execution) == ("never" if never else "exit 0")
        assert (f"{number}\n".encode() in bench.output().splitlines(True)) is not never


def test_a_status_is_there_once_its_full_stop_is(tmp_path: Path) -> None:
    for text, found in (("\n", None), ("exit 1", None), ("exit 13", None), ("exit 137.", 137)):
        (tmp_path / "claim").write_text(text.ljust(STATUS_BYTES))
        status = folders.read_status(str(tmp_path))
        assert (status and status.code) == found


def test_ignored_sigterm_ends_by_sigkill_after_the_grace(bench: Bench) -> None:
    execution = bench.bash("trap '' TERM; echo up; while :; do sleep 0.05; done")
    bench.until(lambda: execution.claim and b"up" in bench.output())
    execution.stop(0.2)
    assert bench.over(execution) == "signal 9"
    assert execution.stopped


def test_stopped_program_is_woken_to_end(bench: Bench) -> None:
    execution = bench.bash("echo up; kill -STOP $$; sleep 1000")
    bench.until(lambda: execution.claim and tree.state_of(execution.claim.program.pid) == "T")
    execution.stop(1000)
    assert bench.over(execution) == "signal 15"


def test_all_descendants_are_found_and_killed(bench: Bench) -> None:
    """Double forks with setsid, also without environment, also ignoring SIGTERM."""
    bench_pids = bench.folder / "pids"
    child = f"trap '' TERM; echo $$ >> {bench_pids}; while :; do sleep 0.05; done"
    execution = bench.bash(
        f'(setsid bash -c "{child.replace("$", chr(92) + "$")}" &);'
        f'(env -i setsid /bin/bash -c "{child.replace("$", chr(92) + "$")}" &);'
        f"{child}"
    )
    bench.until(lambda: bench_pids.exists() and len(bench_pids.read_text().split()) == 3)
    pids = [int(text) for text in bench_pids.read_text().split()]
    assert len({os.getsid(pid) for pid in pids}) == 3
    execution.stop(0.1)
    assert bench.over(execution) == "signal 9"
    assert not any(exists(pid) for pid in pids)


def test_orphan_with_the_log_open_does_not_delay_the_status(bench: Bench) -> None:
    execution = bench.bash(
        "(setsid bash -c 'trap \"\" TERM; sleep 1000 & wait; sleep 1000' &); exit 5"
    )
    bench.until(lambda: execution.exit is not None)
    assert execution.exit is not None
    assert execution.exit.code == 5
    assert bench.over(execution) == "exit 5"
    assert not execution.stopped


def test_what_a_keeping_execution_leaves_lives_until_it_is_stopped(bench: Bench) -> None:
    execution = bench.execution(keeps=True)
    execution.start(bench.request("/bin/bash", "-c", f"sleep 1000 & echo $! > {bench.folder}/pid"))
    bench.until(lambda: execution.phase is Phase.EXITED)
    pid = int((bench.folder / "pid").read_text())
    assert exists(pid)
    execution.stop(10)
    assert bench.over(execution) == "exit 0"
    assert not exists(pid)


def test_wrapper_killed_9_is_lost_and_nothing_survives(bench: Bench) -> None:
    execution = bench.bash("sleep 1000 & (env -i setsid sleep 1001 &); sleep 1002")
    bench.until(lambda: len(execution.processes()) == 3)
    pids = execution.processes()
    assert execution.claim is not None
    os.kill(execution.claim.wrapper.pid, signal.SIGKILL)
    assert bench.over(execution) == "lost"
    eventually(lambda: not any(exists(pid) for pid in pids))


def test_wrapper_and_launcher_killed_9_leave_what_bears_the_mark_to_be_found(bench: Bench) -> None:
    execution = bench.bash("(setsid sleep 1001 &); sleep 1002")
    bench.until(lambda: len(execution.processes()) == 2)
    pids = execution.processes()
    assert execution.claim is not None
    os.kill(bench.launcher.pid, signal.SIGKILL)
    bench.until(lambda: bench.launcher.pid == 0)
    os.kill(execution.claim.wrapper.pid, signal.SIGKILL)
    assert bench.over(execution) == "lost"
    eventually(lambda: not any(exists(pid) for pid in pids))


def test_wrapper_frozen_from_outside_does_not_keep_the_end(bench: Bench) -> None:
    execution = bench.bash("sleep 1000")
    bench.until(lambda: execution.claim is not None)
    assert execution.claim is not None
    os.kill(execution.claim.wrapper.pid, signal.SIGSTOP)
    execution.stop(0.1)
    assert bench.over(execution) == "signal 15"


def test_program_gets_a_clean_start(bench: Bench) -> None:
    """Own session, stdin from /dev/null, descriptors 0 to 2, default umask and signals."""
    code = (
        "import os, signal\n"
        "print(os.getsid(0) == os.getpid() == os.getpgrp())\n"
        "fds = sorted(int(fd) for fd in os.listdir('/proc/self/fd'))\n"
        "print(os.readlink('/proc/self/fd/0'), fds)\n"
        "lines = open('/proc/self/status').read().splitlines()\n"
        "print([l.split()[1] for l in lines if l.startswith(('SigBlk', 'SigIgn', 'Umask'))])\n"
        "print(sorted(os.environ))\n"
    )
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    umask = os.umask(0o077)
    inherited = os.dup(0)
    os.set_inheritable(inherited, True)
    try:
        execution = bench.python_code(code, env={"X": "1"})
        assert bench.over(execution) == "exit 0"
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.umask(umask)
        os.close(inherited)
    lines = bench.output().decode().splitlines()
    assert lines[0] == "True"
    assert lines[1] == "/dev/null [0, 1, 2, 3]"  # 3 is the listing's own
    umask_text, blocked, ignored = eval(lines[2])
    assert (umask_text, int(blocked, 16)) == ("0022", 0)
    own = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1  # Python itself ignores these
    threads = 3 << 31  # the C library's own two, which nobody but it may set
    assert int(ignored, 16) & ~threads == own
    assert set(eval(lines[3])) - {"LC_CTYPE"} == {"PATH", "ARGOSY_MARK", "X"}


def test_large_environment_up_to_the_kernels_limit(bench: Bench) -> None:
    page = resource.getpagesize()
    longest = 32 * page - len("BIG=") - 1  # MAX_ARG_STRLEN, with its name and final zero
    fits = bench.bash("echo ${#BIG}", "fits", env={"BIG": "x" * longest})
    assert bench.over(fits) == "exit 0"
    assert bench.output() == b"%d\n" % longest
    many = {f"V{number}": "y" * 100_000 for number in range(15)}
    wide = bench.bash("echo ${#V14}", "wide", env=many)
    assert bench.over(wide) == "exit 0"
    over = bench.bash("true", "over", env={"BIG": "x" * (longest + 1)})
    assert bench.over(over) == "exit 127"
    assert "Argument list too long" in folders.read_failure(over.folder)


def test_output_is_kept_as_it_is(bench: Bench) -> None:
    code = (
        "import os\n"
        "os.write(1, b'\\xff\\xfe\\x00' + b'x' * 1_000_000 + b'\\n')\n"
        "os.write(2, b'10%\\r20%\\r\\n')\n"
    )
    assert bench.over(bench.python_code(code)) == "exit 0"
    assert bench.output() == b"\xff\xfe\x00" + b"x" * 1_000_000 + b"\n" + b"10%\r20%\r\n"


def test_working_directory_may_be_deleted_by_its_program(bench: Bench) -> None:
    place = bench.folder / "cwd"
    place.mkdir()
    execution = bench.execution()
    request = bench.request("/bin/bash", "-c", f"rm -r {place}; echo gone; exit 3")
    execution.start(Request(str(place), request.env, request.argv, request.output))
    assert bench.over(execution) == "exit 3"
    assert bench.output() == b"gone\n"


def test_fork_bomb_under_a_process_limit_is_ended(bench: Bench) -> None:
    """As another user, for root has no such limit: all fork for ever, each in its own session."""
    code = (
        "import os, resource, time\n"
        "os.setgroups([]); os.setgid(54322); os.setuid(54322)\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))\n"
        "os.write(1, b'up')\n"
        "while True:\n"
        "    try:\n"
        "        if os.fork() == 0: os.setsid()\n"
        "    except OSError: time.sleep(0.001)\n"
    )
    if os.geteuid() != 0:
        pytest.fail("this test becomes another user: run it as root")
    execution = bench.python_code(code)
    bench.until(lambda: len(execution.processes()) >= 50)
    execution.stop(0)
    assert bench.over(execution).startswith("signal")
    assert execution.claim is not None
    assert not tree.rest_of(execution.claim, "ARGOSY_MARK=" + bench.word)


def test_100_executions_at_once(bench: Bench) -> None:
    made = [bench.bash(f"exit {number}", f"x{number}") for number in range(100)]
    bench.until(lambda: all(execution.phase is Phase.OVER for execution in made))
    assert [execution.exit and execution.exit.code for execution in made] == list(range(100))


def test_wrapper_is_frugal(bench: Bench) -> None:
    """At most 0.2 MiB of memory of its own (Private_Dirty)."""
    made = [bench.bash("sleep 1000", f"x{number}") for number in range(3)]
    bench.until(lambda: all(execution.claim for execution in made))

    def dirty(execution: Execution) -> int:
        assert execution.claim is not None
        text = Path(f"/proc/{execution.claim.wrapper.pid}/smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if "Private_Dirty" in line)

    assert max(dirty(execution) for execution in made) <= 204


def test_status_arrives_on_a_full_disk(bench: Bench, word: str) -> None:
    """The log and the attempt's folder on a tiny file system that its program fills."""
    if os.geteuid() != 0:
        pytest.fail("this test mounts a tmpfs: run it as root")
    mount = bench.folder / "tiny"
    mount.mkdir()
    assert os.system(f"mount -t tmpfs -o size=256k {word} {mount}") == 0
    try:
        execution = Execution(bench.loop, bench.launcher, str(mount / "x"), word)
        bench.made.append(execution)
        base = bench.request("/bin/bash", "-c", "dd if=/dev/zero bs=4k; echo lost; exit 6")
        execution.start(Request("/", base.env, base.argv, str(mount / "output")))
        assert bench.over(execution) == "exit 6"
        assert os.statvfs(mount).f_bavail == 0
        execution.close()
    finally:
        assert os.system(f"umount {mount}") == 0


def test_a_launcher_that_cannot_fork_is_asked_again(bench: Bench) -> None:
    """Under a process limit (not root): the execution starts as soon as there is room."""
    if os.geteuid() != 0:
        pytest.fail("this test becomes another user: run it as root")
    uid = 100_000 + os.getpid()  # the limit counts what another run of this test has, too
    code = (
        "import sys, os, resource; sys.path.append(sys.argv[1]); sys.dont_write_bytecode = True\n"
        "from agent.processes import launcher\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (6, 6))\n"
        f"os.setgroups([]); os.setgid({uid}); os.setuid({uid})\n"
        "def fork():\n"
        "    try: return os.fork()\n"
        "    except OSError:\n"
        "        with open(sys.argv[2], 'a') as file: file.write('!')\n"
        "        raise\n"
        "launcher._fork = fork\n"
        "launcher.run()"
    )
    refusals = bench.folder / "refusals"
    refusals.touch(0o666)
    refusals.chmod(0o666)
    os.chmod(bench.folder, 0o777)
    sleepers = [
        subprocess.Popen(["/bin/sleep", "1000"], user=uid, group=uid, extra_groups=[])
        for _ in range(6)
    ]
    argv = [sys.executable, "-I", "-S", "-c", code, str(SOURCE.parent), str(refusals)]
    launcher = Launcher(bench.loop, argv, f"launcher-{bench.word}")
    execution = Execution(bench.loop, launcher, str(bench.folder / "x"), bench.word)
    bench.made.append(execution)
    request = bench.request("/bin/echo", "ran")
    folders.make(execution.folder, request)
    for path in [Path(execution.folder), *Path(execution.folder).iterdir()]:
        os.chown(path, uid, uid)
    execution.start(request)
    bench.until(lambda: refusals.stat().st_size >= 2)
    assert not folders.claimed(execution.folder)
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()
    assert bench.over(execution) == "exit 0"
    launcher.close()


def test_a_pid_that_is_another_process_now_is_left_alone(bench: Bench) -> None:
    """The wrapper was gone before the agent could see it, and its pid was used again."""
    execution = bench.bash("sleep 1000")
    bench.until(lambda: execution.phase is Phase.RUNNING)
    claim = execution.claim
    assert claim is not None
    code = "import subprocess; subprocess.run(['sleep', '1000'])"
    stranger = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        (child,) = eventually(lambda: tree.children(stranger.pid))
        earlier = claim.wrapper.started - 1
        mistaken = replace(claim.wrapper, pid=stranger.pid, started=earlier)
        execution.claim = replace(claim, wrapper=mistaken)
        assert execution.processes() == []
        assert execution.signal_all(signal.SIGKILL) == 0
        execution.stop(0.0)
        bench.until(lambda: execution.phase is Phase.OVER)
        assert exists(child)
    finally:
        os.killpg(stranger.pid, signal.SIGKILL)
        stranger.wait()
