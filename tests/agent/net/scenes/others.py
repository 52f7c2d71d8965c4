"""Scenes of mode host with names, of resolvers, and of machines that allow less."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile

from agent.net.linux import kernel
from scenes.world import PYTHON, Attempt, Group, connect, refusal, until

from agent.net import enter, host, isolated, leftovers, names, network, trial

SEEN = (
    "import socket,sys,os\n"
    "own=socket.gethostname(); f=open(sys.argv[1]+'.part','w')\n"
    "f.write(' '.join([own,socket.gethostbyname(own),socket.gethostbyname('b-0.g')]))\n"
    "f.close(); os.rename(sys.argv[1]+'.part',sys.argv[1])\n"
    "os.kill(os.getpid(),int(sys.argv[2])) if len(sys.argv)>2 else None\n"
    "sys.exit(9)\n"
)


class HostGroup:
    """A group in mode host in a folder of its own."""

    def __init__(self, nodes):
        self.place = tempfile.mkdtemp(prefix="host-")
        self.directory = os.path.join(self.place, "group")
        self.mark = "host-" + os.path.basename(self.place)
        self.net = host.build(self.directory, self.mark, nodes)
        names.rewrite(self.net.hosts, names.compose("g", self.net, []))

    def attempt(self, node, argv):
        return Attempt(host.enter_attempt(self.net, node, node + ".g"), argv)

    def read(self, name):
        path = os.path.join(self.place, name)
        until(lambda: os.path.exists(path), "file " + name)
        with open(path) as file:
            text = file.read()
        os.unlink(path)
        return text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        host.destroy(self.net.record())
        left = leftovers.leftovers(self.mark, self.directory)
        assert not left, left
        os.rmdir(self.place)


def host_mode_programs_see_their_names():
    with HostGroup(["a-0", "b-0"]) as group:
        seen = os.path.join(group.place, "seen")
        attempt = group.attempt("a-0", [*PYTHON, SEEN, seen])
        assert attempt.line("exit") == "9"
        nodes = group.net.nodes
        assert group.read("seen") == "a-0.g {} {}".format(nodes["a-0"], nodes["b-0"])
        attempt = group.attempt("b-0", [*PYTHON, SEEN, seen, str(int(signal.SIGUSR2))])
        assert attempt.line("signal") == str(int(signal.SIGUSR2))
        assert group.read("seen").startswith("b-0.g ")
        assert socket.gethostname() not in ("a-0.g", "b-0.g")  # the machine keeps its own


def host_mode_exec_runs_beside_the_program():
    with HostGroup(["a-0", "b-0"]) as group:
        attempt = group.attempt("a-0", ["/bin/sleep", "1000"])
        pid = os.fork()
        if pid == 0:
            seen = os.path.join(group.place, "seen")
            enter.exec_into(attempt.spec, attempt.program, [*PYTHON, SEEN, seen], cwd="/")
        assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 9
        assert group.read("seen").startswith("a-0.g ")
        os.kill(attempt.program, signal.SIGTERM)
        assert attempt.line("signal") == "15"


def host_mode_groups_have_ranges_of_their_own():
    place = tempfile.mkdtemp(prefix="host-")
    # one mark, so that all begin at one range and only what is beside them sets them apart
    made = [host.build(f"{place}/{n}/net", "m", ["a-0", "a-1"], names="none") for n in range(20)]
    addresses = [address for one in made for address in one.nodes.values()]
    assert len(set(addresses)) == 40
    assert all(address.startswith("127.") for address in addresses)
    assert host.adopt(made[0].record()) == made[0]
    again = host.build(f"{place}/0/net", "m", ["a-1", "a-2"])
    assert again.nodes["a-1"] == made[0].nodes["a-1"]
    for one in made:
        host.destroy(one.record(), lambda: False)
        assert os.path.isdir(one.directory)  # somebody has come meanwhile
        host.destroy(one.record())
        host.destroy(one.record())
        os.rmdir(os.path.dirname(one.directory))
    os.rmdir(place)


def host_mode_forward_reaches_the_node():
    with HostGroup(["a-0", "b-0"]) as group:
        with socket.socket() as server:
            server.bind((group.net.nodes["a-0"], 0))
            server.listen(1)
            port = server.getsockname()[1]
            with connect(group.net, "a-0", port) as sock:
                sock.sendall(b"x")
            said = refusal(lambda: connect(group.net, "b-0", port))
        assert "refused" in said, said


def nodes_ask_a_resolver_on_the_hosts_loopback_through_the_way_out():
    answer = bytes([192, 0, 2, 53])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.53", 53))
        _as_owner_of_mounts()
        with tempfile.NamedTemporaryFile("w", suffix="resolv") as file:
            file.write("nameserver 127.0.0.53\noptions timeout:5 attempts:4\n")
            file.flush()
            kernel.bind(file.name, os.path.realpath("/etc/resolv.conf"))
            code = (
                "import socket,sys\n"
                "sys.exit(0 if socket.gethostbyname('outside.example.')=='192.0.2.53' else 1)\n"
            )
            with Group(["a-0"], way_out=True) as group:
                asker = group.python("a-0", code)
                server.settimeout(20)
                query, source = server.recvfrom(512)
                assert b"\x07outside\x07example\x00" in query
                # one answer to one question: its name, class IN, type A, a minute, four bytes
                head = query[:2] + b"\x81\x80\0\1\0\1\0\0\0\0"
                question = query[12 : query.index(b"\0", 12) + 5]
                tail = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + answer
                server.sendto(head + question + tail, source)
                assert asker.line("exit") == "0"


def names_come_from_the_file_whatever_nsswitch_says():
    _as_owner_of_mounts()
    with tempfile.NamedTemporaryFile("w", suffix="nsswitch") as file:
        file.write("passwd: files\nhosts: dns [!UNAVAIL=return] files\n")
        file.flush()
        kernel.bind(file.name, os.path.realpath("/etc/nsswitch.conf"))
        code = "import socket,sys; sys.exit(socket.gethostbyname('a-0.g')!='10.77.0.2')"
        with Group(["a-0"]) as group:
            assert group.python("a-0", code).line("exit") == "0"


def a_masked_proc_costs_only_the_pid_namespaces():
    """As containers do it: masks that are locked, since an outer user made them."""
    _as_owner_of_mounts()
    kernel.bind("/dev/null", "/proc/interrupts")
    kernel.unshare(kernel.CLONE_NEWUSER)
    kernel.map_ids("1000 0 1", "1000 0 1")
    place = tempfile.mkdtemp(prefix="trial-")
    answer = trial.trial(place)
    trial.forget(place)
    os.rmdir(place)
    assert answer["mode"] == "isolated", answer
    assert answer["pid_namespaces"] is False


def without_a_default_route_there_is_no_way_out():
    """In a network of its own that has nothing."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    kernel.map_ids(f"0 {uid} 1", f"0 {gid} 1")
    kernel.unshare(kernel.CLONE_NEWNET)
    place = tempfile.mkdtemp(prefix="trial-")
    answer = trial.trial(place)
    trial.forget(place)
    os.rmdir(place)
    assert (answer["mode"], answer["way_out"]) == ("isolated", False), answer


def wanting_isolated_is_never_answered_with_host():
    _as_owner_of_mounts()
    for folder in ("/usr/sbin", "/sbin", "/usr/local/sbin"):
        if os.path.exists(folder + "/nft"):
            kernel.bind("/dev/null", os.path.realpath(folder + "/nft"))
    place = tempfile.mkdtemp(prefix="trial-")
    answer = trial.trial(place, "isolated")
    trial.forget(place)
    os.rmdir(place)
    assert answer["mode"] == "none", answer
    assert answer["failed_step"] == "nft"


def a_build_that_fails_leaves_nothing():
    _as_owner_of_mounts()
    place = tempfile.mkdtemp(prefix="fail-")
    for folder in ("/usr/bin", "/bin", "/usr/local/bin"):
        if os.path.exists(folder + "/pasta"):
            kernel.bind("/dev/null", os.path.realpath(folder + "/pasta"))
    said = refusal(lambda: isolated.build(place + "/net", "failing", ["a-0"], way_out=True))
    assert said.startswith("pasta: "), said
    assert "apt install passt" in said, said
    assert not [line for line in leftovers.leftovers("failing") if "process" in line]
    assert network.load(place + "/net") is None
    shutil.rmtree(place)


def _as_owner_of_mounts():
    """Private mounts for the rest of the scene; an ordinary user needs to be root of something."""
    if os.geteuid() != 0:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.CLONE_NEWUSER)
        kernel.map_ids(f"0 {uid} 1", f"0 {gid} 1")
    kernel.private_mounts()
