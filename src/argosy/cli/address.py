"""What a command is about: `GROUP`, `GROUP/TASK`, `GROUP/TASK/I`, `GROUP/TASK/I@ATTEMPT`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from argosy.errors import InputError, NotFound
from argosy.model.ids import dns_label
from argosy.views.shapes import Overview, TaskView

if TYPE_CHECKING:
    from argosy.sdk.client import Client

COMPLETION_TIMEOUT = 0.4  # seconds
_SHAPE = re.compile(r"([^/@\s]+)(?:/([^/@\s]+))?(?:/(\d+))?(?:@(\d+))?\Z")


@dataclass(frozen=True, slots=True)
class Address:
    """A group, or a part of it."""

    group: str
    task: str = ""  # "": the whole group
    index: int | None = None  # None: the whole task
    attempt: int | None = None  # None: the newest

    def __str__(self) -> str:
        index = f"/{self.index}" if self.index is not None else ""
        attempt = f"@{self.attempt}" if self.attempt is not None else ""
        return self.group + (f"/{self.task}" if self.task else "") + index + attempt


def parse(text: str) -> Address:
    """The parts of an address. Raises InputError."""
    match = _SHAPE.match(text)
    if not match or (match[4] and not match[3]):
        raise InputError(
            f"{text!r} is no address",
            code="flag/address",
            hint="write GROUP, GROUP/TASK, GROUP/TASK/INDEX or GROUP/TASK/INDEX@ATTEMPT",
        )
    group, task, index, attempt = match.groups()
    return Address(group, task or "", *(int(one) if one else None for one in (index, attempt)))


def resolved(view: Overview, address: Address) -> Address:
    """The address with its task as the user wrote it in the file; `trainer-1` names a node too.

    Raises NotFound with the tasks and nodes that there are.
    """
    if not address.task:
        return address
    for task in view.tasks:
        if dns_label(address.task) == dns_label(task.name):
            return _checked(view, task, address)
        for node in task.nodes:
            if address.task == node.node and address.index is None:
                return Address(address.group, task.name, node.index, address.attempt)
    names = ", ".join(f"{address.group}/{task.name}" for task in view.tasks)
    raise NotFound(f"{view.name} has no task {address.task!r}", hint=f"it has {names}")


def one_node(client: Client, text: str) -> tuple[str, str, int]:
    """Group id, task and index of an address that must name one node.

    A group or a task of one node is that node. Raises InputError when there are several.
    """
    address = parse(text)
    view = client.group(address.group)
    address = resolved(view, address)
    if address.index is not None:
        return view.id, address.task, address.index
    nodes = [
        (task.name, node.index)
        for task in view.tasks
        for node in task.nodes
        if address.task in ("", task.name)
    ]
    if len(nodes) != 1:
        names = ", ".join(f"{address.group}/{task}/{index}" for task, index in nodes[:6])
        raise InputError(
            f"{text} has {len(nodes)} nodes, and this needs one",
            code="flag/address",
            hint=f"say which: {names}",
        )
    return view.id, *nodes[0]


def _checked(view: Overview, task: TaskView, address: Address) -> Address:
    index = address.index
    if index is not None and index >= len(task.nodes):
        raise NotFound(
            f"{view.name} has no node {task.name}/{index}",
            hint=f"the last one is {address.group}/{task.name}/{len(task.nodes) - 1}",
        )
    return Address(address.group, task.name, index, address.attempt)


class AddressType(click.ParamType):  # type: ignore[type-arg]
    """An address on the command line; completes groups, tasks and nodes from a running server."""

    name = "address"

    def __init__(self, *, deep: bool = True) -> None:
        self._deep = deep  # whether parts of a group may be named

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Names that begin so; nothing when no server answers at once."""
        from click.shell_completion import CompletionItem

        try:
            names = self._known(incomplete)
        except Exception:  # completion never disturbs a command line
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    def _known(self, incomplete: str) -> list[str]:
        return _names(incomplete, self._deep)


class InfraType(AddressType):
    """The name of an infra, or of a kind of them; completes those of a running server."""

    name = "infra"

    def _known(self, incomplete: str) -> list[str]:
        names = _at_once().server().infras
        return sorted({*names, *(name.partition("/")[0] for name in names)})


def _at_once() -> Client:
    """The server that runs, if it answers at once."""
    from argosy.sdk.client import Client  # of the network: what works offline does without

    return Client(start=False, timeout=COMPLETION_TIMEOUT)


def _names(incomplete: str, deep: bool) -> list[str]:
    client = _at_once()
    group, slash, _ = incomplete.partition("/")
    if not slash or not deep:
        return list(dict.fromkeys(row.name for row in client.groups(ended=True, limit=100)))
    tasks = client.group(group).tasks
    if incomplete.count("/") == 1:
        return [f"{group}/{task.name}" for task in tasks]
    return [f"{group}/{task.name}/{node.index}" for task in tasks for node in task.nodes]
