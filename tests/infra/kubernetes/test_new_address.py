"""A replaced node's new address reaches the programs of its peers."""

from __future__ import annotations

import json

import pytest

from tests.infra.kubernetes.person import Person
from tests.infra.kubernetes.rig import until

pytestmark = pytest.mark.kubernetes

SECONDS_OWN = 2.0  # by our names, after the address was known
SECONDS_DNS = 2.0  # by the cluster's DNS, beyond its TTL
TTL = 1.0  # of the rig's DNS
HOWS = ("own", "hosts", "peers", "dns")
ROOM = 5.0  # times as much: the machine of the test may have other things to do
# Asks for the other's address in four ways, and says when each answer is another than before.
WATCHER = r"""
import json, os, random, socket, struct, time

def own():
    return socket.gethostbyname("moved-0.news")

def hosts():
    for line in open("/etc/hosts"):
        words = line.split()
        if "moved-0.news" in words:
            return words[0]

def peers():
    whole = json.load(open(os.environ["ARGOSY_PEERS"]))
    return next(one["address"] for one in every(whole) if one.get("name") == "moved-0.news")

def every(tree):
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for one in tree:
            yield from every(one)

def dns():
    name = f"moved-0.news.{SPACE}.svc.cluster.local"
    words = b"".join(bytes([len(one)]) + one.encode() for one in name.split("."))
    asked = struct.pack(">6H", random.randrange(65536), 0x100, 1, 0, 0, 0) + words + b"\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.5)
        sock.sendto(asked, (SERVER, 53))
        said = sock.recv(512)
    return ".".join(map(str, said[-4:])) if said[7] else None

SPACE = "@SPACE@"
SERVER = next(line.split()[1] for line in open("/etc/resolv.conf") if "nameserver" in line)
last = {}
while True:
    for ask in (own, hosts, peers, dns):
        try:
            found = ask()
        except (OSError, ValueError, StopIteration):
            found = None
        if found and last.get(ask.__name__) != found:
            last[ask.__name__] = found
            print(json.dumps([ask.__name__, found, time.time()]), flush=True)
    time.sleep(0.02)
"""
GROUP = """name: news
execution: parallel
restart: {on: [lost], scope: node, backoff: 0s}
---
name: moved
resources: {cpus: 0.1}
grace: 1s
run: sleep 1000
---
name: peer
resources: {cpus: 0.1}
envs: {WATCHER: %s}
run: exec python3 -c "$WATCHER"
"""


def test_peers_that_run_see_a_new_address_soon(person):
    """By name, in the hosts file and in the peers file; and by the DNS of the cluster."""
    watcher = WATCHER.replace("@SPACE@", person.space.name)
    person.launched(GROUP % json.dumps(watcher))
    person.phase("news", "RUNNING")
    until(lambda: seen(person, 1), lambda: f"not all is seen: {told(person)}")
    pod = person.space.pods()["moved-0"]["metadata"]["name"]
    person.space.kubectl("delete", "pod", pod, "--wait=false")
    until(lambda: seen(person, 2), lambda: f"not all is seen: {told(person)}")
    known_at, address = known(person)
    later = {how: news[-1][1] - known_at for how, news in told(person).items()}
    assert {how: news[-1][0] for how, news in told(person).items()} == dict.fromkeys(HOWS, address)
    print("seconds from the address to a peer:", json.dumps(later))
    for how in HOWS:
        most = SECONDS_DNS + TTL if how == "dns" else SECONDS_OWN
        assert later[how] < ROOM * most, later
    assert person.nodes("news")["peer-0"]["attempt"] == 1


def told(person: Person) -> dict[str, list[tuple[str, float]]]:
    """How -> the addresses that the peer has seen so, each with its time, in their order."""
    found: dict[str, list[tuple[str, float]]] = {how: [] for how in HOWS}
    for line in person.logs("news/peer/0", "--no-prefix"):
        how, address, at = json.loads(line)
        found[how].append((address, at))
    return found


def seen(person: Person, count: int) -> bool:
    """Whether the peer has seen so many addresses in every way."""
    return all(len({address for address, _ in news}) >= count for news in told(person).values())


def known(person: Person) -> tuple[float, str]:
    """When the address of the newest attempt of `moved-0` was known, and what it is."""
    ready = [
        one for one in person.client.events("news")
        if one.code == "attempt-ready" and one.about == "moved-0"
    ]  # fmt: skip
    return ready[-1].at, ready[-1].text.rpartition(" ")[2]
