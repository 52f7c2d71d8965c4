"""The environment of a program: clean, and the same whoever started server or agent. Pure."""

from __future__ import annotations

import os
import pwd
from typing import Any, Dict, List, Mapping, Optional

from .records import dataclass

LOGIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOTH = ("ARGOSY_", "SKYPILOT_")


@dataclass(frozen=True)
class User:
    """Whose home the programs see."""

    name: str
    home: str
    zone: str = ""
    """TZ of the host, "" when it has none."""


def this_user() -> User:
    """The user that the agent runs as (read once, at start)."""
    zone = os.environ.get("TZ", "")
    try:
        entry = pwd.getpwuid(os.getuid())
        return User(entry.pw_name, entry.pw_dir, zone)
    except KeyError:  # a container that runs as a number
        return User(str(os.getuid()), os.environ.get("HOME", "/"), zone)


@dataclass(frozen=True)
class Where:
    """What only the host knows of a node."""

    cwd: str
    peers: str
    """Path of the peers file."""
    hostname: str
    """Own name, or own address where names do not work."""
    checkpoints: str
    shared: str
    """"": the group has no folder that is the same on all its hosts."""
    gpus_on_host: int = 0
    image: Optional[Mapping[str, str]] = None
    """What the image of the container sets for all programs."""


@dataclass(frozen=True)
class Addresses:
    """What the environment says of an address book, made once for all programs of a group."""

    hosts: Dict[str, str]
    """ARGOSY_HOST_TASK_INDEX of every node whose address is known."""
    by_task: Dict[str, List[str]]
    """The addresses of a task's nodes in their order, "" for one that is not known."""


def addresses(book: Mapping[str, Any]) -> Addresses:
    """The addresses of the protocol's BOOK that are known so far."""
    hosts: Dict[str, str] = {}
    by_task: Dict[str, List[str]] = {}
    for node in sorted(book.get("nodes") or [], key=lambda node: (node["task"], node["index"])):
        address = node.get("address") or ""
        by_task.setdefault(node["task"], []).append(address)
        if address:
            name = "".join(c if c.isalnum() else "_" for c in node["task"]).upper()
            hosts["ARGOSY_HOST_%s_%d" % (name, node["index"])] = address
    return Addresses(hosts, by_task)


def compose(
    user: User,
    group: Mapping[str, Any],
    task: Mapping[str, Any],
    order: Mapping[str, Any],
    known: Addresses,
    where: Where,
) -> Dict[str, str]:
    """The whole environment of one attempt; dictionaries as the protocol has them."""
    env: Dict[str, str] = {
        "PATH": LOGIN_PATH,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }
    if user.zone:
        env["TZ"] = user.zone
    env.update(where.image or {})
    env.update(_facts(group, task, order))
    own = known.by_task.get(str(order["task"]), [])
    for prefix in BOTH:
        env[prefix + "NODE_IPS"] = env[prefix + "SETUP_NODE_IPS"] = "\n".join(own)
    env.update(known.hosts)
    if task.get("launcher") == "torchrun" and own and own[0]:
        env["MASTER_ADDR"] = own[0]
    env.update({name: str(value) for name, value in (task.get("env") or {}).items()})
    env.update({name: str(value) for name, value in (task.get("secrets") or {}).items()})
    env.update({name: str(value) for name, value in (order.get("env") or {}).items()})
    env.update(
        PWD=where.cwd,
        ARGOSY_PEERS=where.peers,
        ARGOSY_HOSTNAME=where.hostname,
        ARGOSY_CHECKPOINT_DIR=where.checkpoints,
        ARGOSY_MARK=str(order["attempt"]),
    )
    if where.shared:
        env["ARGOSY_SHARED_DIR"] = where.shared
    devices = visible_devices(order.get("gpu_indices") or [], where.gpus_on_host)
    if devices is not None and "CUDA_VISIBLE_DEVICES" not in (task.get("env") or {}):
        env["CUDA_VISIBLE_DEVICES"] = devices
    return env


def visible_devices(indices: List[int], gpus_on_host: int) -> Optional[str]:
    """What CUDA_VISIBLE_DEVICES is set to; None: leave it unset (a host without GPUs)."""
    if indices or gpus_on_host:
        return ",".join(str(index) for index in indices)
    return None


def _facts(
    group: Mapping[str, Any], task: Mapping[str, Any], order: Mapping[str, Any]
) -> Dict[str, str]:
    """What the order says; the control plane's own values (in the task's `env`) win."""
    both = {
        "NODE_RANK": order["index"],
        "SETUP_NODE_RANK": order["index"],
        "NUM_NODES": task.get("num_nodes", 1),
        "NUM_GPUS_PER_NODE": task.get("gpus", 0),
        "SETUP_NUM_GPUS_PER_NODE": task.get("gpus", 0),
        "JOBGROUP_NAME": group.get("name", ""),
        "MANAGED_JOB_ID": group.get("job_id", ""),
        "USER": group.get("user", ""),
    }
    env = {prefix + name: str(value) for name, value in both.items() for prefix in BOTH}
    env.update(
        ARGOSY_GROUP=str(group.get("name", "")),
        ARGOSY_TASK=str(order["task"]),
        ARGOSY_NODE=str(order["node"]),
        ARGOSY_ATTEMPT=str(order["number"]),
        ARGOSY_INCARNATION=str(order["incarnation"]),
        ARGOSY_RESTART_REASON=str(order.get("restart_reason") or ""),
    )
    return env


def peers(
    group: Mapping[str, Any],
    incarnation: int,
    book: Mapping[str, Any],
    address_by_balanced: Mapping[str, str],
) -> Dict[str, Any]:
    """The content of the peers file, but for `self`, which is another for each node."""
    keys = ("task", "index", "name", "address", "attempt", "live", "healthy")
    nodes = [
        dict({key: node.get(key) for key in keys}, ports=node.get("ports") or [])
        for node in book.get("nodes") or []
    ]
    balanced = [
        {
            "task": entry["task"],
            "name": entry.get("name", ""),
            "address": address_by_balanced.get(entry["task"], ""),
            "ports": entry.get("ports") or [],
        }
        for entry in book.get("balanced") or []
    ]
    return {
        "version": book.get("version", 0),
        "group": group.get("name", ""),
        "incarnation": incarnation,
        "nodes": nodes,
        "balanced": balanced,
    }
