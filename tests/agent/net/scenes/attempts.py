"""Scenes of attempts in an isolated network: ports, names, ends, and what escapes."""

from __future__ import annotations

import contextlib
import os
import select
import signal

from agent.net.linux import kernel
from scenes.world import (
    DEADLINE,
    Attempt,
    Group,
    alive,
    ask,
    connect,
    descendants,
    http,
    refusal,
    until,
)

from agent.net import enter, isolated

# A program with ways out: each leaves a process that sleeps, in a session of its own, without
# environment, orphaned; then it writes that it is done and ends or stays.
ESCAPES = (
    "import os,sys,time\n"
    "for n in range(3):\n"
    " if os.fork()==0:\n"
    "  os.setsid()\n"
    "  if os.fork()==0:\n"
    "   if os.fork(): os._exit(0)\n"
    "   os.execve('/bin/sleep',['sleep','1000'],{})\n"
    "  os._exit(0)\n"
    " os.wait()\n"
    "os.system('env -i setsid sleep 1000 >/dev/null 2>&1 &')\n"
    "open(sys.argv[1],'w').close()\n"
    "if sys.argv[2]=='stay': time.sleep(1000)\n"
    "os._exit(int(sys.argv[2]))\n"
)


def _all(attempt, count):
    """What descends from the wrapper, once it is so many and each sleeps or is the program."""
    found = descendants(attempt.wrapper)
    words = [_command(pid) for pid in found if pid != attempt.program]
    return found if len(found) == count and set(words) == {b"sleep"} else []


def two_nodes_bind_one_port_and_find_each_other_by_name():
    asking = (
        "import socket,sys\n"
        "s=socket.create_connection((sys.argv[2],8000),20); s.sendall(b'GET /')\n"
        "said=b''.join(iter(lambda: s.recv(4096),b'')).decode()\n"
        "own=socket.gethostname(); address=socket.gethostbyname(own)\n"
        "back=socket.gethostbyaddr(address)[0]\n"
        "f=open(sys.argv[1]+'.part','w')\n"
        "f.write(' '.join([said.split()[-1],own,address,back,s.getsockname()[0]])); f.close()\n"
        "import os; os.rename(sys.argv[1]+'.part',sys.argv[1])\n"
    )
    with Group(["a-0", "a-1"]) as group:
        for node in ("a-0", "a-1"):
            group.python(node, http(200), group.file(node))
            group.read(node)
        for node, other in (("a-0", "a-1"), ("a-1", "a-0")):
            asker = group.python(node, asking, group.file("said"), other + ".g")
            assert asker.line("exit") == "0"
            address = group.network.nodes[node]
            said = f"{other}.g {node}.g {address} {node}.g {address}"
            assert group.read("said") == said, group.read("said")
            os.unlink(group.file("said"))


def exit_codes_and_signals_are_exact():
    with Group(["a-0"]) as group:
        for own in (True, False):
            for code in (0, 1, 3, 137, 143, 255):
                ended = group.attempt("a-0", ["/bin/sh", "-c", f"exit {code}"], own)
                assert ended.line("exit") == str(code)
                until(ended.gone, "the wrapper to end")
            for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1):
                ended = group.attempt("a-0", ["/bin/sh", "-c", f"kill -{int(number)} $$"], own)
                assert ended.line("signal") == str(int(number))
                until(ended.gone, "the wrapper to end")


def a_signal_from_outside_ends_the_program():
    with Group(["a-0"]) as group:
        for own in (True, False):
            attempt = group.attempt("a-0", ["/bin/sleep", "1000"], own)
            os.killpg(attempt.program, signal.SIGTERM)
            assert attempt.line("signal") == "15"


def what_escapes_stays_in_sight_and_ends_with_the_wrapper():
    with Group(["a-0"]) as group:
        attempt = group.python("a-0", ESCAPES, group.file("done"), "7")
        assert attempt.line("exit") == "7"  # the status does not wait for the orphans
        rest = until(lambda: _all(attempt, 4), "four orphans")
        assert not attempt.gone()
        os.kill(attempt.wrapper, signal.SIGKILL)
        until(attempt.gone, "the attempt to end")
        until(lambda: not any(alive(pid) for pid in rest), "the orphans to end")


def what_escapes_in_the_shared_namespace_is_killed_as_a_tree():
    with Group(["a-0"]) as group:
        attempt = group.python("a-0", ESCAPES, group.file("done"), "stay", own=False)
        group.read("done")

        def killed():
            for pid in descendants(attempt.wrapper):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return select.select([attempt.fd], [], [], 0)[0]

        until(killed, "the program to end")
        assert attempt.line("signal") == "9"
        until(lambda: killed() and attempt.gone(), "the wrapper to end")


def orphans_of_a_killed_wrapper_are_strays():
    with Group(["a-0", "a-1"]) as group:
        other = group.attempt("a-1", ["/bin/sleep", "1000"], own=False)
        attempt = group.python("a-0", ESCAPES, group.file("done"), "stay", own=False)
        group.read("done")
        tree = until(lambda: _all(attempt, 5), "five processes")
        os.kill(attempt.wrapper, signal.SIGKILL)
        spec = isolated.enter_attempt(group.network, "a-0", "a-0.g", False)
        until(lambda: sorted(isolated.strays(spec)) == sorted(tree), "strays")
        assert not isolated.strays({**spec, "net": spec["net"] + "0"})
        assert not isolated.strays({**spec, "holder": [spec["holder"][0], 1]})
        for pid in tree:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not isolated.strays(spec), "strays to end")
        assert alive(other.program)


def killing_the_holder_ends_everything():
    with Group(["a-0", "a-1"], way_out=True) as group:
        one = group.python("a-0", ESCAPES, group.file("one"), "stay")
        two = group.python("a-1", ESCAPES, group.file("two"), "stay", own=False)
        group.read("one")
        group.read("two")
        trees = [until(lambda a=a: _all(a, 5), "five processes") for a in (one, two)]
        everything = [one.wrapper, two.wrapper, *trees[0], *trees[1]]
        os.kill(group.network.holder.pid, signal.SIGKILL)
        until(lambda: one.gone() and two.gone(), "attempts to end")
        until(lambda: not any(alive(pid) for pid in everything), "processes to end")
        assert isolated.adopt(group.network.record()) is None


def a_program_counts_processes_of_its_own_namespace():
    seen = (
        "import os,sys\n"
        "pids=sorted(int(n) for n in os.listdir('/proc') if n.isdigit())\n"
        "me=int(os.readlink('/proc/self'))\n"
        "f=open(sys.argv[1],'w'); f.write('%d %d %d' % (me==os.getpid(),os.getpid(),len(pids)))\n"
        "f.close()\n"
    )
    with Group(["a-0"]) as group:
        assert group.python("a-0", seen, group.file("own")).line("exit") == "0"
        same, pid, count = group.read("own").split()
        assert (same, pid, count) == ("1", "2", "2"), group.read("own")
        assert group.python("a-0", seen, group.file("all"), own=False).line("exit") == "0"
        same, _, count = group.read("all").split()
        assert same == "1"
        assert int(count) >= 4  # holder, its sleep, wrapper, program


def a_program_keeps_its_user_and_cannot_change_names():
    seen = (
        "import os,sys,errno\n"
        "try: open('/etc/hosts','w'); said='written'\n"
        "except OSError as e: said=errno.errorcode[e.errno]\n"
        "f=open(sys.argv[1],'w'); f.write('%d %d %s' % (os.getuid(),os.getgid(),said)); f.close()\n"
    )
    with Group(["a-0"]) as group:
        assert group.python("a-0", seen, group.file("seen")).line("exit") == "0"
        assert group.read("seen") == f"{os.getuid()} {os.getgid()} EROFS"
        assert os.stat(group.file("seen")).st_uid == os.getuid()


def an_attempt_without_a_pid_namespace_works_too():
    with Group(["a-0"]) as group:
        spec = {**group.spec("a-0"), "join": None}
        attempt = Attempt(spec, ["/bin/sh", "-c", "test $(uname -n) = a-0.g && exit 5"])
        assert attempt.line("exit") == "5"
        os.waitpid(attempt.wrapper, 0)


def joining_a_holder_that_is_gone_is_an_error():
    with contextlib.suppress(FileNotFoundError):
        enter.join_holder(2**22 - 1, True)
        raise AssertionError("joined something else")


def entering_the_network_of_a_holder_that_is_gone_is_an_error():
    with Group(["a-0"]) as group:
        spec = group.spec("a-0")
        pid, start = spec["holder"]
        with contextlib.suppress(ProcessLookupError):
            enter.enter({**spec, "holder": [pid, start + 1]})
            raise AssertionError("entered something else")


def exec_runs_beside_the_program():
    script = "echo $PLACE $(pwd) $(uname -n) $(id -u) $$ $#; exit 42"
    with Group(["a-0"]) as group:
        for own in (True, False):
            env = {"PLACE": "inside", "PATH": "/usr/bin:/bin"}
            code = ["/bin/sh", "-c", "cd /usr && exec sleep 1000"]
            attempt = group.attempt("a-0", code, own, env)
            until(lambda pid=attempt.program: _command(pid) == b"sleep", "the program")
            said, status = _exec(attempt, ["/bin/sh", "-c", script])
            words = said.split()
            assert words[:4] == ["inside", "/usr", "a-0.g", str(os.getuid())], said
            assert os.WEXITSTATUS(status) == 42
            _, status = _exec(attempt, ["/bin/sh", "-c", "kill -9 $$"])
            assert os.WTERMSIG(status) == 9
            said, status = _exec(attempt, ["no-such-program"])
            assert os.WEXITSTATUS(status) == 127
            assert "no-such-program" in said
            assert alive(attempt.program)
            os.kill(attempt.program, signal.SIGKILL)
            assert attempt.line("signal") == "9"


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[0]
    except OSError:
        return b""


def _exec(attempt, argv):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        enter.exec_into(attempt.spec, attempt.program, argv)
    os.close(writer)
    with open(reader) as file:
        said = file.read()
    return said, os.waitpid(pid, 0)[1]


def ending_exec_ends_its_command():
    with Group(["a-0"]) as group:
        attempt = group.attempt("a-0", ["/bin/sleep", "1000"])
        pid = os.fork()
        if pid == 0:
            enter.exec_into(attempt.spec, attempt.program, ["/bin/sleep", "1000"])
        inner = until(lambda: descendants(pid), "the command")[0]
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        # by the signal, or by itself if the end came before the signal was asked for
        assert os.waitpid(inner, 0)[1] in (signal.SIGKILL, 127 << 8)


def forward_reaches_the_node_and_its_loopback():
    with Group(["a-0", "a-1"]) as group:
        group.python("a-0", http(200), group.file("up"))
        local = http(200).replace("0.0.0.0", "127.0.0.1").replace("8000", "8001")
        group.python("a-0", local, group.file("local"))
        group.read("up")
        group.read("local")
        for port in (8000, 8001):
            with connect(group.network, "a-0", port) as sock:
                assert ask(sock) == "a-0.g"
        assert "refused" in refusal(lambda: connect(group.network, "a-1", 8000))


def a_running_program_sees_changed_names():
    looking = (
        "import socket,sys,os\n"
        "open(sys.argv[1],'w').close()\n"
        "while 1:\n"
        " try: found=socket.gethostbyname('b-0.g'); break\n"
        " except OSError: pass\n"
        "sys.exit(0 if found==sys.argv[2] else 1)\n"
    )
    with Group(["a-0"]) as group:
        wanted = "10.77.0.3"
        # without a resolver an unknown name is answered at once: in the scene's own resolv.conf
        attempt = group.python("a-0", looking, group.file("up"), wanted)
        group.read("up")
        group.network = isolated.build(group.directory, group.mark, ["b-0"])
        assert group.network.nodes["b-0"] == wanted
        group.name_all()
        assert select.select([attempt.fd], [], [], DEADLINE)[0]
        assert attempt.line("exit") == "0"
