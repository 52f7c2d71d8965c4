"""What needs no machine: addresses, the hosts file, subnets, rules, and what the launcher loads."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from argosy.agent.net import names, network, trial
from argosy.agent.net.linux import router
from argosy.agent.records import replace

AGENT_FOLDER = Path(network.__file__).parents[2]


def a_network(mode: str = "isolated", subnet: str = "10.77.0.0/24") -> network.Network:
    return network.Network(
        mode=mode,
        directory="/nowhere/g",
        mark="m",
        subnet=subnet,
        router="10.77.0.1",
        nodes={},
        balanced={},
        holder=network.Holder("boot", 12, 34),
    )


def test_nodes_count_from_below_and_balanced_tasks_from_above() -> None:
    one = network.with_names(a_network(), ("a-0", "a-1"), ("a",))
    two = network.with_names(one, ("a-1", "b-0", "b-0"), ("a", "b"))
    assert two.nodes == {"a-0": "10.77.0.2", "a-1": "10.77.0.3", "b-0": "10.77.0.4"}
    assert two.balanced == {"a": "10.77.0.254", "b": "10.77.0.253"}
    assert two.number("b-0") == 4


def test_a_full_subnet_refuses_one_more() -> None:
    small = a_network(subnet="10.77.0.0/29")
    full = network.with_names(small, tuple(f"a-{n}" for n in range(4)), ("a",))
    assert len({*full.nodes.values(), *full.balanced.values()}) == 5
    with pytest.raises(network.NetworkError, match="room for 5"):
        network.with_names(full, ("a-4",), ())


def test_a_record_is_json_and_gives_the_same_network() -> None:
    one = network.with_names(a_network(), ("a-0",), ("a",))
    assert network.from_record(json.loads(json.dumps(one.record()))) == one
    plain = network.Network("host", "/d", "m", "127.64.0.0/24", "127.0.0.1", {}, {})
    assert network.from_record(plain.record()) == plain


def test_the_hosts_file_lists_all_that_programs_look_up() -> None:
    net = network.with_names(a_network(), ("a-0", "b-0"), ("a",))
    machine = ["10.0.0.5 nas", "127.0.1.1 laptop"]
    assert names.compose("g", net, machine).splitlines() == [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        "10.77.0.1 router.g router",
        "10.77.0.2 a-0.g a-0",
        "10.77.0.3 b-0.g b-0",
        "10.77.0.254 a.g",
        "10.0.0.5 nas",
    ]
    assert "127.0.1.1 laptop" in names.compose("g", a_network("host"), machine)
    odd = network.with_names(a_network(), (), ("Roll_Out",))
    assert "10.77.0.254 roll-out.g\n" in names.compose("g", odd, [], {"Roll_Out": "roll-out.g"})


def test_nodes_of_a_group_on_several_hosts_have_the_hosts_address() -> None:
    """The own one where programs listen; a node that has moved away has that of its new host."""
    plain = network.Network("host", "/d", "m", "127.64.0.0/24", "127.0.0.1", {}, {})
    own = replace(plain, address="192.0.2.7", bound="10.0.0.7")
    net = network.with_names(own, ("a-0", "a-1"), ("a",))
    assert net.nodes == {"a-0": "10.0.0.7", "a-1": "10.0.0.7"}
    assert net.balanced == {"a": "127.64.0.254"}
    assert network.from_record(net.record()) == net
    others = {"a-0": "192.0.2.7", "a-1": "192.0.2.8", "b-0": "192.0.2.8", "c-0": "192.0.2.7"}
    assert names.compose("g", net, [], others=others).splitlines()[2:] == [
        "10.0.0.7 a-0.g a-0",
        "192.0.2.8 a-1.g a-1",
        "192.0.2.8 b-0.g b-0",
        "192.0.2.7 c-0.g c-0",
        "127.64.0.254 a.g",
    ]


def test_who_waits_for_the_lock_of_a_removed_network_takes_the_new_one(tmp_path: Path) -> None:
    place = str(tmp_path / "net")
    entered, result = threading.Event(), []

    def wait_for_it() -> None:
        entered.set()
        with network.locked(place):
            result.append(os.path.isdir(place))

    waiting = threading.Thread(target=wait_for_it)
    with network.locked(place):
        waiting.start()
        assert entered.wait(30)
        shutil.rmtree(place)
    waiting.join(30)
    assert result == [True]


def test_a_reader_of_the_hosts_file_never_misses_a_name(tmp_path: Path) -> None:
    path = str(tmp_path / "hosts")
    lines = [f"10.77.0.{n} a-{n}.g a-{n}\n" for n in range(2, 100)]
    texts = ["".join(lines), "".join(lines) + "10.77.0.254 b.g\n", "".join(lines[:50])]
    names.rewrite(path, texts[0])
    inode = os.stat(path).st_ino
    missed: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            text = Path(path).read_text()
            if "10.77.0.2 a-2.g" not in text or "a-51.g" not in text:
                missed.append(text)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(300):
        names.rewrite(path, texts[number % 3])
    done.set()
    reader.join()
    assert missed == []
    assert os.stat(path).st_ino == inode
    names.rewrite(path, texts[2])
    assert Path(path).read_text() == texts[2]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("hosts: files dns", None),
        ("hosts:\tfiles", None),
        ("hosts: resolve [!UNAVAIL=return] files dns", "resolve [!UNAVAIL=return] dns"),
        ("hosts: myhostname files  # mine", "myhostname"),
        ("passwd: files", None),
        ("", None),
    ],
)
def test_files_come_first_in_nsswitch(line: str, wanted: str | None) -> None:
    text = f"passwd: files\n{line}\nshadow: files\n"
    expected = f"passwd: files\nhosts: files {wanted}\nshadow: files\n" if wanted else None
    assert names.files_first(text) == expected


def test_a_subnet_keeps_away_from_what_the_host_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ipaddress.ip_network(router.free_subnet(5)).prefixlen == 24
    assert ipaddress.ip_network(router.free_subnet(1000)).num_addresses > 1000
    used = [ipaddress.IPv4Network("10.77.0.0/17"), ipaddress.IPv4Network("10.77.128.0/24")]
    monkeypatch.setattr(router, "touched_networks", lambda: used)
    assert router.free_subnet(5) == "10.77.129.0/24"
    monkeypatch.setattr(router, "touched_networks", lambda: [ipaddress.IPv4Network("10.0.0.0/8")])
    assert router.free_subnet(5) == "172.16.0.0/24"


def test_a_resolver_on_loopback_is_noticed() -> None:
    assert router.loopback_resolver("# x\nnameserver 127.0.0.53\noptions edns0\n")
    assert not router.loopback_resolver("nameserver 192.0.2.1\n")
    assert not router.loopback_resolver("")


def test_rules_name_the_subnet_and_nothing_of_the_host() -> None:
    text = router.rules("10.99.0.0/24")
    assert "ip daddr 10.99.0.0/24 notrack" in text
    assert 'oifname "wan0" ip daddr { 10.99.0.0/24, 169.254.77.0/30 } reject' in text


def test_the_launcher_loads_little_for_enter() -> None:
    code = (
        "import sys; before=set(sys.modules); sys.path.append(sys.argv[1])\n"
        "import agent.net.enter\n"
        "new=set(sys.modules)-before\n"
        "print(sorted(m for m in new if not m.startswith(('agent','ctypes','_ctypes'))))"
    )
    folder = str(AGENT_FOLDER)
    argv = [sys.executable, "-I", "-S", "-c", code, folder]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    heavy = {"json", "socket", "subprocess", "selectors", "ipaddress", "dataclasses", "signal"}
    assert heavy.isdisjoint(eval(said)), said


def test_the_newest_trial_is_the_last(tmp_path: Path) -> None:
    for way_out in (False, True):
        trial.trial(str(tmp_path), "host", way_out)
    file = tmp_path / trial.TRIALS
    known = json.loads(file.read_text())
    known["host-False"]["key"] = ["of another boot"]
    file.write_text(json.dumps(known))
    trial.trial(str(tmp_path), "host", False)
    assert list(json.loads(file.read_text())) == ["host-True", "host-False"]


def test_folders_of_trials_elsewhere_are_cleared_only_when_old(tmp_path: Path) -> None:
    """Their pids mean nothing here."""
    gone = 1 << 30
    here, young, old = (
        tmp_path / f"trial-{gone}-1-{where}-x" for where in (trial._here(), "0" * 8, "1" * 8)
    )
    for folder in (here, young, old):
        folder.mkdir()
    os.utime(old, (1000.0, 1000.0))
    trial.clear(str(tmp_path))
    assert set(tmp_path.iterdir()) == {young}
