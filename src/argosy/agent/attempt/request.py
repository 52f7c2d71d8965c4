"""Composes what an execution asks for, and the peers file, from what its attempt knows."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Dict

from .. import environment
from ..naming import safe_name
from ..processes.folder import Request
from .health import shell
from .volumes import translated

if TYPE_CHECKING:
    from .attempts import Attempt


def request_of(attempt: Attempt, script: str) -> Request:
    """What to execute for a script of the attempt. Raises OSError."""
    spec = attempt.record.get("spec") or {}
    work = str(attempt.record["work"])
    env = _environment(attempt, work)
    env.update(spec.get("env") or {})
    options = ["-euo", "pipefail"] if attempt.task.get("strict") else []
    return Request(
        cwd=work,
        env=env,
        argv=[shell(), *options, script],
        output=attempt.output,
        limits=attempt.task.get("limits"),
        spec=spec or None,
    )


def _environment(attempt: Attempt, work: str) -> Dict[str, str]:
    group, order = attempt.group, attempt.order
    name = group.node_name(str(order["node"]))
    return environment.compose(
        attempt.place.user,
        group.facts,
        attempt.task,
        order,
        group.addresses(),
        environment.Where(
            cwd=work,
            peers=os.path.join(attempt.folder, "peers.json"),
            hostname=name if group.names_work else attempt.record.get("address", ""),
            checkpoints=_checkpoints(attempt, str(order["task"])),
            shared=_shared(attempt),
            gpus_on_host=attempt.place.gpus_on_host,
            image=attempt.place.image,
        ),
    )


def _shared(attempt: Attempt) -> str:
    """Where the group's programs exchange files: in a volume that all mount, else the group's
    folder here; "" where that would not be the same for all of them.
    """
    exchange = str(attempt.record.get("exchange") or "")
    if exchange:
        return os.path.join(exchange, "shared")
    return attempt.group.shared_folder() if attempt.group.facts.get("shared", True) else ""


def _checkpoints(attempt: Attempt, task: str) -> str:
    """Where a task keeps its checkpoints; made here. Raises OSError."""
    exchange = str(attempt.record.get("exchange") or "")
    if not exchange:
        return attempt.group.checkpoints(task)
    path = os.path.join(exchange, "checkpoints", safe_name(task))
    binds = (attempt.record.get("spec") or {}).get("volumes") or []
    made = translated(path, binds)[0]
    try:
        os.mkdir(made)
        os.chmod(made, os.stat(os.path.dirname(made)).st_mode & 0o1777)
    except FileExistsError:
        pass
    return path


def write_peers(attempt: Attempt) -> None:
    """Write the attempt's peers file anew, by rename, unless it says so already. Raises OSError."""
    order = attempt.order
    node, told = attempt.group.peers(str(order["node"]), int(order["incarnation"]))
    if attempt.peers_told is told:
        return
    # The text for all, with `self` put in: encoding a book for each node anew is most of the work
    # of a large group.
    text = '{"self":%s,%s' % (json.dumps(node), told[1:])
    path = os.path.join(attempt.folder, "peers.json")
    fd = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        file.write(text)
    os.rename(path + ".part", path)
    attempt.peers_told = told
