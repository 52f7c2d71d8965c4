"""Scenes of the network itself: building, adopting, the way out, supervision, probes, the trial."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

from agent.net.linux import holder, kernel, router
from scenes.world import (
    DEADLINE,
    Group,
    alive,
    ask,
    connect,
    descendants,
    here_answer,
    http,
    refusal,
    until,
)

from agent.net import (
    balance,
    isolated,
    leftovers,
    network,
    probe,
    supervisor,
    trial,
)


def isolated_works_here():
    answer = here_answer()
    assert answer["mode"] == "isolated", answer
    assert answer["names"] == "mount"
    assert answer["pid_namespaces"] is True
    assert answer["way_out"] is True
    assert answer["reason"] == ""


def building_again_changes_nothing_and_adds_what_is_new():
    with Group(["a-0"]) as group:
        again = isolated.build(group.directory, group.mark, ["a-0"])
        assert again == group.network
        more = isolated.build(group.directory, group.mark, ["a-1", "a-0"], balanced=["a"])
        assert more.nodes == {"a-0": "10.77.0.2", "a-1": "10.77.0.3"}
        assert more.balanced == {"a": "10.77.0.254"}
        assert more.holder == group.network.holder
        assert isolated.adopt(group.network.record()) == more
        assert network.load(group.directory) == more
        assert len(holder.find(group.mark)) == 1


def a_hundred_nodes_all_answer():
    names = [f"n-{number}" for number in range(100)]
    with Group(names) as group:
        prober = probe.Prober(group.network)
        asked = {prober.ask(name, "tcp", 9, timeout=DEADLINE): name for name in names}
        answers = _answers(prober, len(names))
        prober.close()
        # nobody listens, but each node is there to say so
        assert {asked[a["id"]] for a in answers} == set(names)
        assert {a["detail"] for a in answers} == {"Connection refused"}, answers


def a_build_that_was_cut_off_is_done_anew():
    with Group(["a-0"]) as group:
        for delay in (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1):
            directory = group.file("cut")
            mark = group.mark + "-cut"
            child = os.fork()
            if child == 0:
                os.setsid()
                isolated.build(directory, mark, [f"n-{n}" for n in range(20)], way_out=False)
                os._exit(0)
            select.select([], [], [], delay)  # a different moment each time, whatever that is
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            made = isolated.build(directory, mark, ["n-0", "n-21"], way_out=False)
            assert len(holder.find(mark)) == 1
            connected = _refused(made, "n-21")
            isolated.destroy(made.record())
            assert connected, "node n-21 is not there"
            assert not leftovers.leftovers(mark, directory)


def _refused(made, node):
    try:
        connect(made, node, 9)
    except ConnectionError as error:
        return "refused" in str(error)
    return False


def who_came_meanwhile_keeps_the_network():
    with Group(["a-0"]) as group:
        isolated.destroy(group.network.record(), lambda: False)
        assert holder.alive(group.network.holder)
        assert isolated.build(group.directory, group.mark, ["a-0"]).holder == group.network.holder


def destroying_twice_and_nothing_is_fine():
    with Group(["a-0"]) as group:
        record = group.network.record()
        isolated.destroy(record)
        isolated.destroy(record)
        group.network = isolated.build(group.directory, group.mark, ["a-0"])
        assert group.network.holder != network.from_record(record).holder


def leftovers_names_what_is_there():
    with Group(["a-0"], way_out=True) as group:
        group.attempt("a-0", ["/bin/sleep", "1000"])
        found = "\n".join(leftovers.leftovers(group.mark, group.directory))
        assert "argosy-net " + group.mark in found
        assert "/pasta" in found
        assert "mount " in found
        assert "/etc/hosts" in found
        assert "directory " + group.directory in found


def a_full_subnet_is_an_error_that_says_so():
    with Group(["a-0"]) as group:
        names = [f"n-{n}" for n in range(300)]
        said = refusal(lambda: isolated.build(group.directory, group.mark, names))
        assert said.startswith("addresses: "), said
        assert "/20" in said


def the_way_out_leads_to_the_host_and_comes_back_when_killed():
    outside = _host_address()
    code = (
        "import socket,sys\n"
        "s=socket.create_connection((sys.argv[1],int(sys.argv[2])),20); s.sendall(b'hello')\n"
        "said=b''.join(iter(lambda: s.recv(65536),b''))\n"
        "sys.exit(0 if len(said)==3000000 else 1)\n"
    )
    with Group(["a-0"], way_out=True) as group, socket.socket() as server:
        server.bind((outside, 0))
        server.listen(4)
        port = str(server.getsockname()[1])
        _serve_one(server, group, code, outside, port)
        loop = supervisor._identity(group.directory, "pasta")[0]
        first = until(lambda: _pasta(loop), "pasta")
        os.kill(first, signal.SIGKILL)
        second = until(lambda: [p for p in [_pasta(loop)] if p and p != first], "pasta again")
        assert second
        until(lambda: router.has_way_out(group.network.holder), "the default route")
        _serve_one(server, group, code, outside, port)
        # a loop that is killed leaves its pasta; ensure revives it, and all still works
        os.kill(loop, signal.SIGKILL)
        until(lambda: not supervisor.running(group.network, "pasta"), "the loop to end")
        supervisor.ensure(group.network)
        assert supervisor.running(group.network, "pasta")
        _serve_one(server, group, code, outside, port)


def _pasta(loop):
    found = [p for p in descendants(loop) if b"--netns" in holder.command_line(p)]
    return found[0] if found else 0


def _serve_one(server, group, code, outside, port):
    asker = group.python("a-0", code, outside, port)
    server.settimeout(DEADLINE)
    client = server.accept()[0]
    with client:
        client.settimeout(DEADLINE)
        assert client.recv(100) == b"hello"
        client.sendall(bytes(3000000))
    assert asker.line("exit") == "0"


def _host_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("198.51.100.77", 9))  # sends nothing: the route tells the address
        return sock.getsockname()[0]


def nodes_do_not_reach_the_hosts_loopback():
    code = (
        "import socket,sys\n"
        "for a in sys.argv[2:]:\n"
        " try: socket.create_connection((a,int(sys.argv[1])),3); sys.exit(1)\n"
        " except OSError: pass\n"
    )
    with Group(["a-0"], way_out=True) as group, socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(4)
        port = str(server.getsockname()[1])
        places = ["127.0.0.1", "10.77.0.1", "169.254.77.1", "169.254.77.2"]
        assert group.python("a-0", code, port, *places).line("exit") == "0"


def there_is_one_proxy_and_it_comes_back_when_killed():
    with Group(["a-0", "a-1", "c-0"], balanced=["a"]) as group:
        for node in ("a-0", "a-1"):
            group.python(node, http(200), group.file(node))
            group.read(node)
        backends = [balance.Backend(group.network.nodes[n]) for n in ("a-0", "a-1")]
        balance.write(group.network, [balance.Service("a", [8000], backends)])
        for _ in range(3):
            supervisor.ensure(group.network)
        loop = supervisor._identity(group.directory, "proxy")[0]
        _ask_by_name(group)
        first = supervisor._identity(group.directory, "proxy.running")[0]
        assert first in descendants(loop)
        os.kill(first, signal.SIGKILL)
        second = until(lambda: _proxy(group, first), "another proxy")
        _ask_by_name(group)
        os.kill(loop, signal.SIGKILL)
        until(lambda: not supervisor.running(group.network, "proxy"), "the loop to end")
        supervisor.ensure(group.network)  # its proxy waits for the one that still works
        _ask_by_name(group)
        assert alive(second)
        os.kill(second, signal.SIGKILL)
        until(lambda: _proxy(group, second), "a third proxy")
        _ask_by_name(group)
        supervisor.stop(group.network)
        assert not supervisor.running(group.network, "proxy")
        assert not alive(supervisor._identity(group.directory, "proxy.running")[0])


def _proxy(group, than):
    found = supervisor._identity(group.directory, "proxy.running")
    return found[0] if found and found[0] != than and alive(found[0]) else 0


def _ask_by_name(group):
    code = (
        "import socket,sys,time\n"
        "end=time.monotonic()+20; seen=set()\n"
        "while len(seen)<2 and time.monotonic()<end:\n"
        " try:\n"
        "  s=socket.create_connection(('a.g',8000),20); s.sendall(b'x')\n"
        "  said=b''.join(iter(lambda: s.recv(4096),b'')).split()\n"
        " except OSError: said=[]\n"
        " if said: seen.add(said[-1])\n"
        "sys.exit(0 if seen=={b'a-0.g',b'a-1.g'} else 1)\n"
    )
    assert group.python("c-0", code).line("exit") == "0"


def probes_see_each_node_from_within():
    with Group(["a-0", "a-1", "a-2"]) as group:
        group.python("a-0", http(200), group.file("good"))
        group.python("a-1", http(503), group.file("bad"))
        group.python("a-2", http(200, seconds=1000), group.file("slow"))
        for name in ("good", "bad", "slow"):
            group.read(name)
        prober = probe.Prober(group.network)
        asked = {
            prober.ask("a-0", "tcp", 8000, timeout=DEADLINE): (True, "accepted"),
            prober.ask("a-0", "http", 8000, "/health", DEADLINE): (True, "HTTP/1.1 200 X"),
            prober.ask("a-1", "http", 8000, "/", DEADLINE): (False, "HTTP/1.1 503 X"),
            prober.ask("a-1", "tcp", 9, timeout=DEADLINE): (False, "Connection refused"),
            prober.ask("a-2", "http", 8000, "/", 0.3): (False, "no answer in time"),
        }
        for answer in _answers(prober, len(asked)):
            assert (answer["ok"], answer["detail"]) == asked[answer["id"]], answer
        os.kill(prober.pid, signal.SIGKILL)
        select.select([prober.fd], [], [], DEADLINE)
        try:
            prober.results()
        except EOFError:
            prober.close()
        else:
            raise AssertionError("a dead prober was not noticed")


def _answers(prober, count):
    found = []
    while len(found) < count:
        assert select.select([prober.fd], [], [], DEADLINE)[0], found
        found += prober.results()
    return found


def a_restarted_agent_adopts_the_network_and_its_attempts():
    with Group(["a-0"], way_out=True) as group:
        # the "agent" that builds and starts is another process, which is killed
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            attempt = group.python("a-0", http(200), group.file("up"))
            os.write(writer, b"%d" % attempt.wrapper)
            time.sleep(1000)
        wrapper = int(os.read(reader, 20))
        group.read("up")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        adopted = isolated.adopt(group.network.record())
        assert adopted == group.network
        assert alive(wrapper)
        with connect(adopted, "a-0", 8000) as sock:
            assert ask(sock) == "a-0.g"
        assert router.has_way_out(adopted.holder)
        os.close(reader)
        os.close(writer)


def a_holder_of_another_start_is_not_ours():
    with Group(["a-0"]) as group:
        record = group.network.record()
        for change in ({"start": 1}, {"boot": "other"}):
            wrong = {**record, "holder": {**record["holder"], **change}}
            assert isolated.adopt(wrong) is None


def the_trial_says_what_is_missing():
    """Run in a fork each: what is taken away there is taken away for good."""
    assert _tried_without(_no_more_user_namespaces) == ("user-namespace", "max_user_namespaces")
    assert _tried_without(_no_nft) == ("nft", "apt install nftables")
    assert _tried_without(_no_pasta) == ("pasta", "apt install passt")


def what_a_killed_trial_leaves_is_cleared():
    place = tempfile.mkdtemp(prefix="trial-")

    def mine(child):
        return [one for mark, one in holder.every() if mark.startswith(f"trial-{child}-")]

    child = os.fork()
    if child == 0:
        try:
            trial.trial(place)
        finally:
            os._exit(0)
    until(lambda: mine(child), "the trial's holder")
    os.kill(child, signal.SIGSTOP)  # long before it comes to its end
    # A holder is a shell, whose own child looks like one until it is something else.
    left = until(lambda: len(mine(child)) == 1 and mine(child), "it is one process")
    trial.clear(place)
    assert set(left) <= set(mine(child)), "the trial lives: it is left alone"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert set(left) <= set(mine(child))
    assert os.listdir(place)
    trial.clear(place)
    assert not mine(child)
    assert not [one for one in left if holder.is_there(one)]
    assert os.listdir(place) == []
    os.rmdir(place)


def _tried_without(take_away):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            take_away()
            place = tempfile.mkdtemp(prefix="trial-")
            answer = trial.trial(place)
            again = trial.trial(place)
            assert again == answer
            trial.forget(place)
            os.rmdir(place)
            assert answer["mode"] == "host", answer
            os.write(writer, repr((answer["failed_step"], answer["hint"])).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader) as file:
        step, hint = eval(file.read())
    known = ("max_user_namespaces", "apt install nftables", "apt install passt")
    return step, next((text for text in known if text in hint), hint)


def _as_owner_of_mounts():
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    kernel.map_ids(f"0 {uid} 1", f"0 {gid} 1")
    kernel.private_mounts()


def _no_more_user_namespaces():
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    kernel.map_ids(f"1000 {uid} 1", f"1000 {gid} 1")
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")


def _no_nft():
    _as_owner_of_mounts()
    for place in {os.path.realpath(p + "/nft") for p in router.SBIN.split(":")}:
        if os.path.exists(place):
            kernel.bind("/dev/null", place)


def _no_pasta():
    _as_owner_of_mounts()
    for place in {os.path.realpath(p + "/pasta") for p in router.SBIN.split(":")}:
        if os.path.exists(place):
            kernel.bind("/dev/null", place)


def many_agents_build_one_network_at_once():
    with Group(["a-0"]) as group:
        code = (
            "import sys; sys.path[:0]=sys.argv[1:2]\n"
            "from agent.net import isolated\n"
            "isolated.build(sys.argv[2],sys.argv[3],[sys.argv[4]],way_out=False)\n"
        )
        argv = [sys.executable, "-I", "-c", code, sys.path[0], group.directory, group.mark]
        running = [subprocess.Popen([*argv, n]) for n in ("x-0", "x-1", "x-2", "x-3")]
        assert [child.wait(DEADLINE) for child in running] == [0, 0, 0, 0]
        group.network = network.load(group.directory)
        assert set(group.network.nodes) == {"a-0", "x-0", "x-1", "x-2", "x-3"}
        assert len(set(group.network.nodes.values())) == 5
        assert all(_refused(group.network, node) for node in group.network.nodes)
