"""What the scenes share: a group's network in a fresh folder, attempts, waiting with a deadline.

Runs on Python 3.8 without packages, as root or as an ordinary user, in a network that is empty but
for a default route.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import tempfile
import time

from agent.net.linux import kernel

from agent.net import enter, forward, isolated, leftovers, names, trial

DEADLINE = 30.0
PYTHON = [sys.executable, "-I", "-S", "-c"]


def until(condition, what, seconds=DEADLINE):
    """Wait for a true value and give it; fails the scene when it does not come."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "in vain: " + what
        time.sleep(0.005)


def refusal(call):
    """The text of the error that `call` ends in; the scene fails when there is none."""
    try:
        call()
    except Exception as error:
        return f"{error} {getattr(error, 'hint', '')}"
    raise AssertionError("no error")


def connect(network, node, port):
    """A connection to a port of a node, waited for."""
    connecting = forward.Connecting(network, node, port)
    ready, _, _ = select.select([connecting.fd], [], [], DEADLINE)
    assert ready, "no answer of the child"
    os.waitpid(connecting.pid, 0)
    return connecting.result()


class Attempt:
    """A wrapper with its program, as the launcher makes them."""

    def __init__(self, spec, argv, env=None, prepare=None):
        self.spec = spec
        self.lines = []
        self._rest = b""
        self.fd, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(self.fd)
                _wrap(spec, argv, env, writer)
            except BaseException as error:
                os.write(writer, (f"failed {error!r}\n").encode())
            finally:
                os._exit(70)
        os.close(writer)
        os.waitpid(child, 0) if spec["join"] else None
        self.wrapper = int(self.line("wrapper"))
        self.program = int(self.line("program"))
        self.out = self.line("entered")

    def line(self, word):
        """The next thing that was told, which must be `word`; its value."""
        while b"\n" not in self._rest:
            assert select.select([self.fd], [], [], DEADLINE)[0], "no word of " + word
            more = os.read(self.fd, 4096)
            assert more, "the wrapper is gone, no word of " + word
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        key, _, value = line.decode().partition(" ")
        assert key == word, line
        return value

    def gone(self):
        """Nobody holds the wrapper's end of the pipe."""
        if not select.select([self.fd], [], [], 0)[0]:
            return False
        return not os.read(self.fd, 4096)


def _wrap(spec, argv, env, out):
    if spec["join"]:
        enter.join_holder(spec["join"][0], spec["join"][2])
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    os.write(out, ("wrapper {}\n".format(os.readlink("/proc/self"))).encode())
    program = os.fork()
    if program == 0:
        try:
            os.setsid()
            os.write(out, ("program {}\n".format(os.readlink("/proc/self"))).encode())
            enter.enter(spec)
            os.write(out, b"entered\n")
            os.set_inheritable(out, False)
            os.execvpe(argv[0], argv, os.environ if env is None else env)
        except BaseException as error:
            os.write(out, (f"failed {error!r}\n").encode())
        finally:
            os._exit(127)
    try:
        while True:
            pid, status = os.wait()
            if pid == program:
                kind = "signal %d" if status & 127 else "exit %d"
                os.write(out, (kind % (status & 127 or status >> 8) + "\n").encode())
    except ChildProcessError:
        os._exit(0)


class Group:
    """A group's network in a folder of its own; `with` ends it and looks for what is left."""

    def __init__(self, nodes, balanced=(), way_out=False, mark=None):
        self.place = tempfile.mkdtemp(prefix="net-")
        self.mark = mark or f"mark-{os.getpid()}-{os.path.basename(self.place)}"
        self.before = leftovers.namespaces(), leftovers.links()
        self.directory = os.path.join(self.place, "group")
        self.network = isolated.build(
            self.directory, self.mark, nodes, balanced=balanced, way_out=way_out
        )
        self.name_all()

    def name_all(self):
        names.rewrite(self.network.hosts, names.compose("g", self.network, []))

    def spec(self, node, own=True):
        return isolated.enter_attempt(self.network, node, node + ".g", own)

    def attempt(self, node, argv, own=True, env=None):
        return Attempt(self.spec(node, own), argv, env)

    def python(self, node, code, *args, **kinds):
        return self.attempt(node, [*PYTHON, code, *args], **kinds)

    def file(self, name):
        return os.path.join(self.place, name)

    def read(self, name):
        """The text of a file that a program writes, once it is complete."""
        path = self.file(name)
        until(lambda: os.path.exists(path), "file " + name)
        with open(path) as file:
            return file.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        isolated.destroy(self.network.record())
        left = leftovers.leftovers(self.mark, self.directory)
        assert not left, left
        spaces, links = self.before
        until(lambda: not _more(leftovers.namespaces(), spaces), "namespaces to go")
        until(lambda: leftovers.links() == links, "links to go")
        for name in os.listdir(self.place):
            os.unlink(os.path.join(self.place, name))
        os.rmdir(self.place)


def _more(now, before):
    return [space for kind in now for space in now[kind] - before.get(kind, set())]


def descendants(pid):
    found = []
    todo = [pid]
    while todo:
        try:
            with open(f"/proc/{todo[0]}/task/{todo[0]}/children") as file:
                kids = [int(word) for word in file.read().split()]
        except OSError:
            kids = []
        todo = todo[1:] + kids
        found += kids
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def here_answer():
    """What the trial says of this machine, in a fresh folder."""
    place = tempfile.mkdtemp(prefix="trial-")
    try:
        return trial.trial(place)
    finally:
        trial.forget(place)
        os.rmdir(place)


def kill(pid, number=signal.SIGKILL):
    os.kill(pid, number)


def http(status, seconds=0.0):
    """A program's text: an HTTP server on 0.0.0.0:8000 that gives this status, its node's name."""
    return (
        "import socket,time,sys,os\n"
        "s=socket.socket(); s.setsockopt(1,2,1); s.bind(('0.0.0.0',8000)); s.listen(64)\n"
        "open(sys.argv[1],'w').close()\n"
        "while 1:\n"
        f" c=s.accept()[0]; c.recv(4096); time.sleep({seconds!r})\n"
        " b=os.uname().nodename.encode()\n"
        f" c.sendall(b'HTTP/1.1 {status} X\\r\\nContent-Length: '+b'%d'%len(b)+b'\\r\\n\\r\\n'+b)\n"
        " c.close()\n"
    )


def ask(sock, text=b"GET / HTTP/1.0\r\n\r\n"):
    """Send, read to the end, give the last line."""
    sock.settimeout(DEADLINE)
    sock.sendall(text)
    said = b""
    while True:
        more = sock.recv(65536)
        if not more:
            return said.rpartition(b"\n")[2].decode()
        said += more


def listener(address="127.0.0.1", port=0):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    sock.listen(16)
    return sock
