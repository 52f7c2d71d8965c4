"""Who else is in this group, from the peers file: every task, node, name, address.

The file named by `$ARGOSY_PEERS` is replaced whole whenever an address or a state changes. Each
call here looks whether it changed and reads it again if so; no call waits.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Union


class NotInGroup(RuntimeError):
    """This program does not run inside a group: `$ARGOSY_PEERS` is not set or not there."""


class UnknownPeer(LookupError):
    """The group has no such node, or no address of it is known yet."""


@dataclass(frozen=True)
class Peer:
    """One node of the group, as last told."""

    task: str
    index: int
    name: str  # host name, `trainer-0.rl`
    address: str  # "" while it has none
    ports: Tuple[Union[int, str], ...]  # what the file names; a range is text: "9000-9010"
    attempt: str  # id of the attempt that holds the node now
    live: bool  # it has been started and has not ended
    healthy: bool  # its readiness probe says yes; without a probe: it runs


@dataclass(frozen=True)
class Balanced:
    """An address that stands for the healthy nodes of a task."""

    task: str
    name: str  # host name, `rollout.rl`
    address: str
    ports: Tuple[int, ...]


@dataclass(frozen=True)
class Book:
    """The whole file, parsed."""

    version: int  # grows with every change
    group: str
    incarnation: int
    own: Optional[Peer]  # None where the file does not list this node
    nodes: Tuple[Peer, ...]
    balanced: Tuple[Balanced, ...]


_Signature = Tuple[int, int, int, int]
# The last book read, with the path and the signature of the file it was read from.
_last: Optional[Tuple[str, _Signature, Book]] = None


def book(path: Optional[str] = None) -> Book:
    """The newest address book; parsed anew only when the file changed. Raises `NotInGroup`."""
    global _last
    where = path or os.environ.get("ARGOSY_PEERS", "")
    if not where:
        raise NotInGroup("ARGOSY_PEERS is not set: start this program as a task of a group")
    try:
        known = _last
        if known is not None and known[:2] == (where, _signature(os.stat(where))):
            return known[2]
        with open(where, encoding="utf-8") as file:
            # Of the open file: the path may name a newer one by now.
            signature = _signature(os.fstat(file.fileno()))
            parsed = _parsed(json.load(file))
    except FileNotFoundError as missing:
        raise NotInGroup(f"{where} (ARGOSY_PEERS) is not there") from missing
    _last = (where, signature, parsed)
    return parsed


def peers(task: Optional[str] = None) -> Tuple[Peer, ...]:
    """All nodes of the group, or those of one task, in the order of tasks and ranks."""
    return tuple(peer for peer in book().nodes if task is None or peer.task == task)


def address(task: str, index: int = 0) -> str:
    """The address of a node now. Raises `UnknownPeer` where there is no such node or address."""
    for peer in peers(task):
        if peer.index == index and peer.address:
            return peer.address
    known = ", ".join(f"{peer.task}-{peer.index}" for peer in peers() if peer.address)
    raise UnknownPeer(f"no address of {task}-{index}; known are: {known or 'none'}")


def balanced(task: str) -> str:
    """The balanced address of a task. Raises `UnknownPeer` where the file declares none."""
    for entry in book().balanced:
        if entry.task == task and entry.address:
            return entry.address
    raise UnknownPeer(f'task "{task}" has no balanced address: give it `balance: PORT`')


def _signature(status: os.stat_result) -> _Signature:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _parsed(raw: Dict[str, Any]) -> Book:
    nodes = tuple(_peer(entry) for entry in raw["nodes"])
    own = raw.get("self") or {}
    mine = [p for p in nodes if (p.task, p.index) == (own.get("task"), own.get("index"))]
    return Book(
        version=raw["version"],
        group=raw["group"],
        incarnation=raw["incarnation"],
        own=mine[0] if mine else None,
        nodes=nodes,
        balanced=tuple(
            Balanced(e["task"], e["name"], e.get("address") or "", tuple(e.get("ports") or ()))
            for e in raw.get("balanced") or ()
        ),
    )


def _peer(entry: Dict[str, Any]) -> Peer:
    return Peer(
        task=entry["task"],
        index=entry["index"],
        name=entry["name"],
        address=entry.get("address") or "",
        ports=tuple(entry.get("ports") or ()),
        attempt=str(entry.get("attempt") or ""),
        live=bool(entry.get("live")),
        healthy=bool(entry.get("healthy")),
    )
