"""Composes what an execution asks for, and the peers file, from what its attempt knows."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Dict

from . import environment
from .health import shell
from .processes.folder import Request

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
            checkpoints=group.checkpoints(str(order["task"])),
            shared=group.shared_folder(),
            gpus_on_host=attempt.place.gpus_on_host,
        ),
    )


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
