"""What the nodes of one group share on this machine: network, address book, names, proxy, shared
folders.

Several agents of one machine may serve one group (virtual hosts): they share `groups/GROUP/` and
its network, which is ended by the last of them to leave.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import environment
from .child import Child
from .loop import Loop
from .naming import safe_name
from .net import balance, host, isolated, machine, names, network, supervisor
from .pod import container
from .processes import folder as folders
from .processes.layout import PARTS, folder_of
from .processes.locks import locked
from .records import dataclass

Ready = Callable[[Optional[str]], None]
"""Called with None when the network is there, else with what went wrong."""


ENDING: Set[str] = set()
"""Folders of groups whose network is just being ended."""
ENDING_RETRY = 0.02


class Group:
    """One group on this machine."""

    def __init__(self, loop: Loop, shared: str, home: str, facts: Dict[str, Any]) -> None:
        """`shared` is the machine's folder, `home` the agent's, `facts` the protocol's GROUP."""
        self.facts = facts
        self.book: Dict[str, Any] = {"version": -1, "nodes": [], "balanced": []}
        self.folder = os.path.join(shared, "groups", safe_name(facts["id"]))
        self.network: Optional[network.Network] = None
        self._loop, self._shared, self._home = loop, shared, home
        self._in_container = container.image_environment(shared) is not None
        self._child: Optional[Child] = None
        self._asking: List[Ready] = []
        self._waiting: List[Ready] = []
        self._nodes: List[str] = []
        self._wanted_again: Optional[Callable[[], bool]] = None
        """Set once this agent has left the group."""
        self.users: Callable[[], List[bool]] = list
        """For each attempt that is in the group's network here: whether it is to end."""
        self._proxied = ""
        self._addresses_heard: Dict[str, str] = {}
        """Node -> the last address that a book had of it."""
        self._named = ""
        """What the hosts file says of other hosts' nodes."""
        self._full: Optional[Tuple[Any, Any, Dict[str, Any]]] = None
        self._addresses: Optional[environment.Addresses] = None
        self._peers: Dict[int, str] = {}

    @property
    def names_work(self) -> bool:
        """Whether programs resolve the names of their peers."""
        return self.network is not None and self.network.names != "none"

    def take_book(self, book: Dict[str, Any]) -> bool:
        """Take a newer address book; False when it is not newer."""
        if book.get("version", 0) <= self.book["version"]:
            return False
        self.book = dict(book)
        self.book.setdefault("nodes", [])
        self.book.setdefault("balanced", [])
        return True

    def full_book(self) -> Dict[str, Any]:
        """The book, with the addresses known here where it has none yet; not to be changed."""
        known = self._full
        if known is None or known[0] is not self.book or known[1] is not self.network:
            nodes = [
                dict(node, address=node.get("address") or self.address(str(node["node"])))
                for node in self.book["nodes"]
            ]
            known = self._full = (self.book, self.network, dict(self.book, nodes=nodes))
            self._addresses, self._peers = None, {}
        return known[2]

    def addresses(self) -> environment.Addresses:
        """What a program's environment says of its peers."""
        book = self.full_book()
        if self._addresses is None:
            self._addresses = environment.addresses(book)
        return self._addresses

    def peers(self, node: str, incarnation: int) -> Tuple[Dict[str, Any], str]:
        """What the peers file says of the node itself, and the JSON text of all else in it.

        The text is the same object until the book or the network is another.
        """
        book = self.full_book()
        if incarnation not in self._peers:
            value = environment.peers(self.facts, incarnation, book, self.balanced_addresses())
            self._peers[incarnation] = json.dumps(value)
        keys = ("task", "index", "name", "address")
        own = [{key: one.get(key) for key in keys} for one in book["nodes"] if one["node"] == node]
        return (own[0] if own else {}), self._peers[incarnation]

    def address(self, node: str) -> str:
        """The address at which a node here is reached, "" while there is none."""
        if self.network is None or node not in self.network.nodes:
            return ""
        return self.network.address or self.network.nodes[node]

    @property
    def spread(self) -> bool:
        """Whether nodes of the group are on other hosts, and are to reach those here."""
        return bool(self.facts.get("spread"))

    @property
    def cut_off(self) -> bool:
        """Whether other hosts are to reach the nodes here, and the network there is forbids it."""
        found = self.network
        return self.spread and found is not None and not found.address and bool(self.users())

    @property
    def _addressed(self) -> bool:
        """Whether nodes have the addresses of their hosts: now, or in the network to be made."""
        return self.spread or bool(self.network is not None and self.network.address)

    def make_folders(self) -> None:
        """The folders that the programs of the group share; says that this agent uses them. Raises
        OSError.
        """
        for name in ("shared", "checkpoints", "users"):
            os.makedirs(os.path.join(self.folder, name), mode=0o700, exist_ok=True)
        path = os.path.join(self.folder, "users", safe_name(self._home))
        if not os.path.exists(path):
            folders.write_once(path, json.dumps({"home": self._home}).encode())

    def shared_folder(self) -> str:
        """Where the group's programs exchange files."""
        return os.path.join(self.folder, "shared")

    def checkpoints(self, task: str) -> str:
        """Where a task keeps its checkpoints; made here. Raises OSError."""
        path = os.path.join(self.folder, "checkpoints", safe_name(task))
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def ensure(self, nodes: List[str], ready: Ready) -> None:
        """Ensure the network with these nodes, those of the book and the balanced tasks."""
        others = [] if self._addressed else [node["node"] for node in self.book["nodes"]]
        wanted = others + nodes
        self._nodes = list(dict.fromkeys(self._nodes + wanted))
        self._waiting.append(ready)
        if self._child is None:
            self._loop.soon(self._build)

    def _build(self) -> None:
        """One build for all that asked until now."""
        if self._child is not None or not self._waiting:
            return
        if self.folder in ENDING:
            self._loop.after(ENDING_RETRY, self._build)
            return
        users, found = self.users(), self.network
        if users and all(users) and found and bool(found.address) != self.spread:
            self._loop.after(ENDING_RETRY, self._build)  # it is made anew once they have ended
            return
        self._asking, self._waiting = self._waiting, []
        wish = Wish(
            facts=self.facts,
            nodes=list(self._nodes),
            balanced=self._balanced_names(),
            others=self._others(),
            address=machine.said_address(self._home) if self.spread else "",
            in_use=bool(users),
        )
        shared, place = self._shared, os.path.join(self.folder, "net")
        if not self._in_container:  # here, or each child would import it anew
            from .net import trial as trial
        try:
            self.make_folders()
            self._child = Child(self._loop, lambda: build(shared, place, wish), self._built)
        except OSError as error:
            self._built(None, str(error))

    def _built(self, record: Any, error: Optional[str]) -> None:
        self._child = None
        if record is not None:
            self.network = network.from_record(record)
            self._proxied = self._named = ""
            self._tell_names()
        if self._wanted_again is not None:
            self._leave()
            return
        asking, self._asking = self._asking, []
        for ready in asking:
            ready(error)
        if self._waiting:
            self._build()

    def adopt(self) -> None:
        """Take over the network that an earlier life of the agent left, if it is still there."""
        found = network.load(os.path.join(self.folder, "net"))
        if found is not None:
            mode = isolated if found.mode == "isolated" else host
            self.network = mode.adopt(found.record())

    def spec(self, node: str, name: str, own_pids: bool) -> Dict[str, Any]:
        """What an execution needs to enter the node's network and names."""
        assert self.network is not None
        mode = isolated if self.network.mode == "isolated" else host
        spec: Dict[str, Any] = mode.enter_attempt(self.network, node, name, own_pids)
        return spec

    def node_name(self, node: str) -> str:
        """The host name of a node."""
        return "%s.%s" % (node, self.facts.get("name", ""))

    def balanced_addresses(self) -> Dict[str, str]:
        """Task -> address for all its nodes: of the proxy here, or of what the infra has."""
        found = {one["task"]: one["address"] for one in self.book["balanced"] if one.get("address")}
        if self.network is not None:
            found.update(self.network.balanced)
        return found

    def _balanced_names(self) -> Dict[str, str]:
        """Task -> the host name of its proxy. In a container there is none: it would take ports
        that the program may want, so the infra balances.
        """
        if self._in_container:
            return {}
        return {entry["task"]: entry.get("name", "") for entry in self.book["balanced"]}

    def _others(self) -> Dict[str, str]:
        """Node -> address of those on other hosts; the last one known, where the book has none."""
        for node in self.book["nodes"]:
            if node.get("address"):
                self._addresses_heard[str(node["node"])] = str(node["address"])
        return dict(self._addresses_heard) if self._addressed else {}

    def update_names(self) -> None:
        """Tell programs where the nodes on other hosts are now. Raises OSError."""
        others, found = self._others(), self.network
        if found is None or not found.address or self.facts.get("names") is False:
            return
        said = repr(sorted(others.items()))
        if said != self._named:
            group, balanced = str(self.facts.get("name", "")), self._balanced_names()
            text = names.compose(group, found, balanced=balanced, others=others)
            names.rewrite(found.hosts, text)
            self._named = said

    def _tell_names(self) -> None:
        try:
            self.update_names()
        except OSError as error:  # it is written again with the next book
            sys.stderr.write("names of %s: %s\n" % (self.facts["id"], error))

    def update_proxy(self, healthy_here: Dict[str, bool]) -> None:
        """Tell the proxy which nodes to use; what this agent knows of its own attempts is newer
        than the book.
        """
        if self.network is None or not self.network.balanced:
            return
        services = []
        for entry in self.book["balanced"]:
            backends = []
            for node in self.book["nodes"]:
                address = node.get("address") or self.address(node["node"])
                if node["task"] != entry["task"] or not address or not node.get("live"):
                    continue
                healthy = healthy_here.get(str(node.get("attempt")), bool(node.get("healthy")))
                backends.append(balance.Backend(address, healthy, False))
            services.append(balance.Service(entry["task"], list(entry["ports"]), backends))
        text = repr(services)
        if text != self._proxied:
            balance.write(self.network, services)
            self._proxied = text

    def revive(self) -> None:
        """Start the way out and the proxy again if they died; cheap when they did not."""
        if self.network is not None and self._child is None:
            try:
                supervisor.ensure(self.network, proxy=bool(self.network.balanced))
            except (OSError, network.NetworkError) as error:
                sys.stderr.write("network of %s: %s\n" % (self.facts["id"], error))

    def leave(self, wanted_again: Callable[[], bool] = lambda: False) -> None:
        """This agent needs the group no more; the last one ends the network. Shared files stay.

        A network that is just being built is ended after that, unless it is then `wanted_again`.
        """
        self._wanted_again = wanted_again
        if self._child is None:
            self._leave()

    def _leave(self) -> None:
        if self._wanted_again is not None and self._wanted_again():
            return
        users = os.path.join(self.folder, "users")
        try:
            os.unlink(os.path.join(users, safe_name(self._home)))
        except OSError:
            pass
        found = self.network or network.load(os.path.join(self.folder, "net"))
        if found is None or not unused(users):
            return
        mode = isolated if found.mode == "isolated" else host
        record, folder = found.record(), self.folder
        self.network = None

        def ended(_: Any, error: Optional[str]) -> None:
            ENDING.discard(folder)
            if error is not None:  # the release of what is group-wide tries it again
                sys.stderr.write("network of %s: %s\n" % (self.facts["id"], error))

        ENDING.add(folder)
        try:
            # Another agent may come meanwhile: it says so before it waits for the network's lock.
            Child(self._loop, lambda: mode.destroy(record, lambda: unused(users)), ended)
        except OSError as error:
            ENDING.discard(folder)
            sys.stderr.write("network of %s: %s\n" % (self.facts["id"], error))

    def remove(self) -> None:
        """Remove the shared folder too (after `forget`)."""
        shutil.rmtree(self.folder, ignore_errors=True)


def unused(users: str) -> bool:
    """Whether no agent uses a group any more, by its folder `users`."""
    try:
        return not any(in_use(os.path.join(users, name)) for name in os.listdir(users))
    except OSError:
        return True


def in_use(path: str) -> bool:
    """Whether the agent that wrote a `users` file lives, or a program that it started."""
    try:
        with open(path) as file:
            home = json.load(file)["home"]
    except (OSError, ValueError, KeyError):
        return False
    if locked(os.path.join(home, "agent.lock")):
        return True
    attempts = os.path.join(home, "attempts")
    try:
        for attempt in os.listdir(attempts):
            for part in PARTS:
                fd = folders.open_alive(folder_of(os.path.join(attempts, attempt), part))
                if fd >= 0:
                    holds = folders.held(fd)
                    os.close(fd)
                    if holds:
                        return True
    except OSError:
        pass
    return False


@dataclass(frozen=True)
class Wish:
    """What a group's network is built for."""

    facts: Dict[str, Any]
    nodes: List[str]
    balanced: Dict[str, str]
    """Task -> the host name of its proxy."""
    others: Dict[str, str]
    """Node -> the address at which hosts reach it, of a group on several."""
    address: str = ""
    """Of this host, where it was said; only of a group on several hosts."""
    in_use: bool = False
    """An attempt is in the network that there is: it stays as it is."""

    @property
    def spread(self) -> bool:
        """Whether the group lies on several hosts."""
        return bool(self.facts.get("spread"))


def build(shared: str, place: str, wish: Wish) -> Dict[str, Any]:
    """Ensure the network of a group; its record. Runs in a child. Raises NetworkError."""
    facts, balanced = wish.facts, wish.balanced
    kept = _kept(place, wish)
    wanted = kept.mode if kept is not None else "host" if wish.spread else facts.get("network")
    tried = container.network(shared)
    if tried is None:
        from .net import trial  # a large import, which no container needs

        tried = trial.trial(shared, wanted or "auto")
    if tried["mode"] == "none":
        raise network.NetworkError(
            str(tried["failed_step"]), str(tried["reason"]), str(tried["hint"])
        )
    mark, tasks = safe_name(str(facts["id"])), list(balanced)
    if tried["mode"] == "isolated":
        way_out, pids = bool(tried["way_out"]), bool(tried["pid_namespaces"])
        made = isolated.build(place, mark, wish.nodes, None, tasks, way_out, pids)
    else:
        if facts.get("names") is True and tried["names"] == "none":
            raise network.NetworkError("names", str(tried["reason"]), str(tried["hint"]))
        address = _address(wish) if wish.spread and kept is None else ""
        made = host.build(place, mark, wish.nodes, None, tasks, str(tried["names"]), address)
    if facts.get("names") is not False:
        others = wish.others if made.address else {}
        group = str(facts.get("name", ""))
        text = names.compose(group, made, balanced=balanced, others=others)
        names.rewrite(made.hosts, text)
    supervisor.ensure(made, proxy=bool(made.balanced))
    return made.record()


def _kept(place: str, wish: Wish) -> Optional[network.Network]:
    """The network that there is, where programs in it forbid to make the one that is wanted now.

    One that nobody is in is ended, where it is of the other kind. Raises NetworkError.
    """
    found = network.load(place)
    if found is None or bool(found.address) == wish.spread:
        return None
    if wish.in_use:
        return found
    (isolated if found.mode == "isolated" else host).destroy(found.record())
    return None


def _address(wish: Wish) -> str:
    """At which other hosts reach this one. Raises NetworkError."""
    found = wish.address or machine.found_address()
    if not found:
        raise network.NetworkError(
            "address", "this host has no address at which the group's other hosts could reach it",
            "name one: `address:` of the host in the pool",
        )  # fmt: skip
    return found
