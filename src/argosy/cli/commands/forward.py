"""`forward`: a port of a node, reached on this machine's loopback."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

import click

from argosy.cli.address import AddressType, one_node
from argosy.cli.screen.paint import say
from argosy.errors import ArgosyError, Conflict, InputError, Unreachable
from argosy.sdk.client import Client

READ_BYTES = 1 << 16
CONNECTIONS_MOST = 256  # at once
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "STOPPED")  # phases that are final
LOOK_SECONDS = 1.0  # between two looks at whether the node has ended
LINGER = 5.0  # seconds that an answer may take after the client has sent all


@click.command()
@click.argument("address", metavar="GROUP/TASK/I", type=AddressType())
@click.argument("ports", metavar="[LOCAL:]PORT...", nargs=-1, required=True)
@click.option("--bind", default="127.0.0.1", show_default=True, help="Listen on this address.")
def forward(address: str, ports: tuple[str, ...], bind: str) -> int:
    """Reach PORT of a node at 127.0.0.1:LOCAL until Ctrl-C; LOCAL 0 picks a free one.

    It goes on when the node is replaced, and exits with 7 when the node has ended for good.
    """
    client = Client()
    ref, task, index = one_node(client, address)
    _refuse_ended(client, ref, task, index)
    target = _Target(client, ref, task, index)
    for local, remote in [_ports(one) for one in ports]:
        listener = _listen(bind, local)
        shown = listener.getsockname()[1]
        say(f"argosy: {bind}:{shown} -> {task}/{index}:{remote}  (Ctrl-C ends it)")
        threading.Thread(target=_accept, args=(listener, target, remote), daemon=True).start()
    try:
        while True:
            time.sleep(LOOK_SECONDS)
            with suppress(Unreachable):  # a server that is started again
                _refuse_ended(client, ref, task, index)
    except KeyboardInterrupt:
        say("")
    return 0


@dataclass(frozen=True, slots=True)
class _Target:
    client: Client
    ref: str
    task: str
    index: int


def _refuse_ended(client: Client, ref: str, task: str, index: int) -> None:
    """Raises Conflict for a node that will not run again; one that is replaced comes back."""
    view = client.group(ref)
    nodes = (one for part in view.tasks if part.name == task for one in part.nodes)
    node = next((one for one in nodes if one.index == index), None)
    if view.final or (node is not None and node.phase in ENDED):
        raise Conflict(
            f"{node.node if node else task} does not run: it has ended",
            code="server/not-running",
            hint=f"`argosy status {view.name}` shows what became of it",
        )


def _ports(text: str) -> tuple[int, int]:
    local, _, remote = text.rpartition(":")
    try:
        pair = (int(local or remote), int(remote))
    except ValueError:
        pair = (-1, -1)
    if not (0 <= pair[0] <= 65535 and 1 <= pair[1] <= 65535):
        raise InputError(
            f"{text!r} is no port", code="flag/port", hint="write PORT or LOCAL:PORT, as 8080:8000"
        )
    return pair


def _listen(bind: str, port: int) -> socket.socket:
    try:
        return socket.create_server((bind, port), backlog=64)
    except OSError as error:
        raise InputError(
            f"can't listen on {bind}:{port}: {error.strerror or error}",
            code="forward/port-taken",
            hint=f"take another port: `0:{port}` picks a free one",
        ) from error


def _accept(listener: socket.socket, target: _Target, port: int) -> None:
    room = threading.BoundedSemaphore(CONNECTIONS_MOST)
    while True:
        connection, _ = listener.accept()
        room.acquire()
        threading.Thread(target=_carry, args=(connection, target, port, room), daemon=True).start()


def _carry(
    connection: socket.socket, target: _Target, port: int, room: threading.BoundedSemaphore
) -> None:
    """One connection, both ways, until both sides have ended."""
    try:
        query: dict[str, object] = {"task": target.task, "index": target.index, "port": port}
        channel = target.client.channel(target.ref, "forward", query)
    except ArgosyError as error:
        say(f"argosy: {error.text}")
        connection.close()
        room.release()
        return

    answered = threading.Event()

    def outward() -> None:
        try:
            while data := connection.recv(READ_BYTES):
                channel.send_bytes(data)
        except (OSError, ArgosyError):
            pass
        # Who has sent all may still read: the rest of the answer gets its time.
        answered.wait(LINGER)
        channel.close()

    threading.Thread(target=outward, daemon=True).start()
    try:
        while (data := channel.receive_raw()) is not None:
            connection.sendall(data.encode() if isinstance(data, str) else data)
    except (OSError, ArgosyError) as error:
        say(f"argosy: port {port}: {error}")
    finally:
        answered.set()
        connection.close()
        channel.close()
        room.release()
