"""Mode isolated: each node of a group in a network namespace of its own, behind the group's router.

    holder   owns the router's network and everything else (holder.py)
    router   first address of the subnet on lo; one veth v<i> and one route for each node
    node i   eth0 with the i-th address /32, default route through the router; outlives attempts

Every function ensures: whatever is there already is kept, whatever is missing is made.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .. import records
from . import names, supervisor
from .linux import holder as holders
from .linux import inside, kernel, netlink, router
from .linux.hints import hint
from .network import (
    Network,
    NetworkError,
    from_record,
    load,
    locked,
    save,
    with_names,
)

ETH0 = 1000  # interface number of eth0 in a node, and of v<i> in the router less i
NODES_AT_ONCE = 100  # bounds the descriptors that the set-up holds
WAY_OUT_SECONDS, SILENT_SECONDS = 5.0, 20.0


def build(
    directory: str,
    mark: str,
    nodes: Sequence[str],
    subnet: Optional[str] = None,
    balanced: Sequence[str] = (),
    way_out: bool = True,
    pid_namespaces: bool = True,
) -> Network:
    """Ensure the group's network with at least these nodes, and give it.

    `directory` and `mark` are the group's on this machine, the same for every agent and call.
    Raises NetworkError; then nothing new is left behind.
    """
    directory = os.path.abspath(directory)
    with locked(directory):
        network = load(directory)
        if network is not None and network.holder and holders.alive(network.holder):
            return _extend(network, tuple(nodes), tuple(balanced))
        lock = holders.clear(directory, mark)  # of a build that did not come to its end
        network = Network(
            mode="isolated",
            directory=directory,
            mark=mark,
            subnet=subnet or router.free_subnet(len(nodes)),
            router="",
            nodes={},
            balanced={},
            namespaces=holders.folder(),
            way_out=way_out,
            pid_namespaces=pid_namespaces,
        )
        try:
            network = with_names(network, tuple(nodes), tuple(balanced))
            return _build_new(network, lock)
        finally:
            os.close(lock)


def _build_new(network: Network, lock: int) -> Network:
    network = _with_holder(network, lock)
    assert network.holder is not None
    try:
        beside = [
            inside.start(lambda: router.load_rules(network)),
            inside.start(lambda: supervisor.ensure(network, proxy=False)),
        ]
        try:
            _make(network, list(network.nodes))
        finally:
            _join(beside)
        names.rewrite(network.hosts, names.compose("local", network))
        router.resolver_file(network.directory)
        if network.way_out:
            _await_way_out(network)
        return save(network)
    except BaseException:
        holders.kill(network.holder)
        raise


def _join(children: List[inside.Child]) -> None:
    """Wait for all, whatever becomes of one. Raises NetworkError."""
    try:
        children[0].result()
    finally:
        if children[1:]:
            _join(children[1:])


def _with_holder(network: Network, lock: int) -> Network:
    """Start the holder; a root that may not (in a container) tries an ordinary user's way."""
    gateway = _router_address(network.subnet)
    user = os.geteuid() != 0
    try:
        holder = holders.start(network.mark, user, lock)
    except NetworkError:
        if user:
            raise
        user = True
        holder = holders.start(network.mark, user, lock)
    return records.replace(network, holder=holder, user=user, router=gateway)


def _router_address(subnet: str) -> str:
    import ipaddress

    return str(ipaddress.ip_network(subnet).network_address + 1)


def _await_way_out(network: Network) -> None:
    assert network.holder is not None
    began = time.monotonic()
    while not router.has_way_out(network.holder):
        waited = time.monotonic() - began
        if waited > WAY_OUT_SECONDS:
            problem = router.way_out_problem() or _last_line(network.directory)
            if problem or waited > SILENT_SECONDS:
                raise NetworkError("pasta", problem or "pasta said nothing", hint("pasta", 0))
        time.sleep(0.002 if waited < 1.0 else 0.1)


def _last_line(directory: str) -> str:
    """What pasta said last; "" when it said nothing: on a busy machine it comes up late."""
    try:
        with open(os.path.join(directory, "pasta.log"), encoding="utf-8", errors="replace") as file:
            return (file.read().strip().splitlines() or [""])[-1]
    except OSError:
        return "pasta was not started"


def _extend(network: Network, nodes: Tuple[str, ...], balanced: Tuple[str, ...]) -> Network:
    wanted = with_names(network, nodes, balanced)
    if wanted == network:
        return network
    _make(wanted, [name for name in wanted.nodes if name not in network.nodes])
    return save(wanted)


def _make(network: Network, nodes: List[str]) -> None:
    for at in range(0, max(len(nodes), 1), NODES_AT_ONCE):
        part = nodes[at : at + NODES_AT_ONCE]
        inside.call(lambda part=part: _make_nodes(network, part))  # type: ignore[misc]


def _make_nodes(network: Network, nodes: List[str]) -> bool:
    """In a child: the router's own address, and namespace, link, address and routes of nodes."""
    with inside.step("links"):
        assert network.holder is not None
        inside.join(network.holder, "mnt", "net")
        place = network.namespaces
        back = os.open(place + "/router", os.O_RDONLY)
        sock = netlink.open_socket()
        # before links are made: they inherit the defaults
        router.apply_settings(router.ROUTER_SETTINGS)
        own = [netlink.address(1, a) for a in (network.router, *network.balanced.values())]
        netlink.send(sock, [netlink.link_up(1), *own])
        made = [_make_namespace(place, network.number(name)) for name in nodes]
        kernel.setns(back, kernel.CLONE_NEWNET)
        numbers = [network.number(name) for name in nodes]
        netlink.send(sock, [netlink.link_delete("v%d" % n) for n, m in zip(numbers, made) if m[2]])
        netlink.send(
            sock,
            [
                netlink.veth("v%d" % n, ETH0 + n, "eth0", ETH0, fd, router.MTU)
                for n, (fd, _, _) in zip(numbers, made)
            ],
        )
        addresses = [network.nodes[name] for name in nodes]
        netlink.send(sock, [netlink.route(ETH0 + n, a) for n, a in zip(numbers, addresses)])
        for (_, inner, _), address in zip(made, addresses):
            netlink.send(
                inner,
                [
                    netlink.link_up(1),
                    netlink.link_up(ETH0),
                    netlink.address(ETH0, address),
                    netlink.default_route(ETH0, network.router),
                ],
            )
    return True


def _make_namespace(place: str, number: int) -> Tuple[int, Any, bool]:
    """A new network namespace under its file: (descriptor, route socket in it, was one there)."""
    path = "%s/n%d" % (place, number)
    old = os.path.exists(path)
    if old:  # of a build that was cut off, or one that is to be fresh
        try:
            kernel.unmount(path)
        except OSError:
            pass
    else:
        open(path, "wb").close()
    kernel.unshare(kernel.CLONE_NEWNET)
    router.apply_settings(router.NODE_SETTINGS)
    kernel.bind("/proc/self/ns/net", path)
    return os.open(path, os.O_RDONLY), netlink.open_socket(), old


def adopt(record: Mapping[str, Any]) -> Optional[Network]:
    """The network of a record that an earlier agent wrote; None when its holder is gone.

    With the holder every attempt in it has ended.
    """
    network = from_record(record)
    if network.holder is None or not holders.alive(network.holder):
        return None
    return load(network.directory) or network


def enter_attempt(
    network: Network, node: str, hostname: str, pid_namespace: bool = True
) -> Dict[str, Any]:
    """What the launcher needs to put an attempt into its node: JSON, valid while the holder lives.

    `pid_namespace` True: a PID namespace of its own; False: the group's.
    """
    assert network.holder is not None
    holder = (network.holder.pid, network.holder.start)
    binds = names.binds(network.directory, network.hosts)
    resolver = os.path.join(network.directory, router.RESOLV)
    if os.path.exists(resolver):
        binds.append((resolver, os.path.realpath("/etc/resolv.conf")))
    return {
        "mode": "isolated",
        "names": "mount",
        "holder": list(holder),
        "join": [*holder, bool(pid_namespace)] if network.pid_namespaces else None,
        "net": "%s/n%d" % (network.namespaces, network.number(node)),
        "binds": [list(pair) for pair in binds],
        "hostname": hostname,
        "user": network.user and os.geteuid() != 0,
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "env": {},
    }


def strays(spec: Mapping[str, Any]) -> List[int]:
    """What of the attempt with this `enter_attempt` has lost its wrapper and fell to the holder.

    [] where that cannot be: with a PID namespace of its own nothing outlives the wrapper. It is
    told by the node's network, whatever session and environment it took. Guests and a successor
    are in that network too, but not here: a living wrapper collects its own orphans, so only what
    has none is a child of the holder.
    """
    if spec.get("mode") != "isolated" or not spec["join"] or spec["join"][2]:
        return []
    pid, start = spec["holder"]
    try:
        node = os.stat("/proc/%d/root%s" % (pid, spec["net"]))
        if kernel.start_time(pid) != start:
            return []
    except OSError:
        return []
    return [one for one in holders.child_pids(pid) or [] if _is_in(one, node)]


def _is_in(pid: int, network: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat("/proc/%d/ns/net" % pid), network)
    except OSError:
        return False


def destroy(record: Mapping[str, Any], unused: Callable[[], bool] = lambda: True) -> None:
    """End all that runs in the network, free it, and remove its directory; fine if all is gone.

    Nothing is done unless it is `unused`, which is asked while nobody else can change the network.
    """
    network = from_record(record)
    if not os.path.isdir(os.path.dirname(network.directory)):  # no place for a lock
        _end(network)
        return
    with locked(network.directory):
        if unused():
            _end(network)
            os.close(holders.clear(network.directory, network.mark))
            shutil.rmtree(network.directory, ignore_errors=True)


def _end(network: Network) -> None:
    if network.holder is not None:
        holders.kill(network.holder)
    for one in holders.find(network.mark):
        holders.kill(one)
