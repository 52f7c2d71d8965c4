"""`exec`: a command in the namespaces, environment and folder of a node's program."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click

from argosy.cli.address import AddressType, one_node
from argosy.cli.screen.paint import terminal, window
from argosy.errors import InputError, Unreachable
from argosy.sdk.client import Client

if TYPE_CHECKING:
    from argosy.sdk.channels import Channel

READ_BYTES = 1 << 16
# A prompt names the folder, and a node's has a long name and lies deep: it is `.` here.
SHORT_PROMPT = r'PS1="\u@\h:\${PWD/#\$ARGOSY_AT/.}\\\$ "; unset PROMPT_COMMAND'
SHELL = [
    "bash", "-c", f"export ARGOSY_AT=\"$PWD\" PROMPT_COMMAND='{SHORT_PROMPT}'; exec bash -i",
]  # fmt: skip
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@click.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("address", metavar="GROUP/TASK/I", type=AddressType())
@click.option("-i", "--interactive", is_flag=True, help="Pass standard input on.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def exec_(address: str, interactive: bool, tty: bool, command: tuple[str, ...]) -> int:
    """Run COMMAND where a node runs; exits with its code (128 + N when signal N ended it).

    With -it a terminal: without COMMAND that is a shell.
    """
    argv = list(command) or (SHELL if tty else [])
    if not argv:
        raise InputError(
            "exec needs a command",
            code="flag/missing",
            hint=f"`argosy exec {address} -- env`, or `argosy exec -it {address}` for a shell",
        )
    if tty and not (terminal(sys.stdin) and terminal(sys.stdout)):
        raise InputError(
            "-t needs a terminal here, and there is none",
            code="flag/no-terminal",
            hint="leave -t out: `-i` alone passes standard input on",
        )
    client = Client()
    ref, task, index = one_node(client, address)
    columns, rows = window(80)
    query: dict[str, object] = {
        "task": task, "index": index, "argv": json.dumps(argv), "tty": int(tty),
        "rows": rows, "cols": columns, "stdin": int(interactive or tty),
    }  # fmt: skip
    channel = client.channel(ref, "exec", query)
    try:
        return _Session(channel, interactive=interactive or tty, tty=tty).run()
    finally:
        channel.close()


class _Session:
    """One run of a program on the other side of a channel."""

    def __init__(self, channel: Channel, *, interactive: bool, tty: bool) -> None:
        self._channel = channel
        self._interactive = interactive
        self._tty = tty
        self._over = threading.Event()
        # Signal handlers may interrupt anything: they only put here, and one thread sends.
        self._outgoing: SimpleQueue[dict[str, Any] | None] = SimpleQueue()

    def run(self) -> int:
        """Until the program has ended; its exit code. The first Ctrl-C is the program's."""
        with _raw(self._tty), self._signals():
            threading.Thread(target=self._send, name="sender", daemon=True).start()
            if self._interactive:
                threading.Thread(target=self._read_input, name="stdin", daemon=True).start()
            else:
                self._outgoing.put({"stdin_end": True})
            try:
                return self._receive()
            finally:
                self._over.set()
                self._outgoing.put(None)

    def _receive(self) -> int:
        from argosy.sdk.channels import unpacked

        while (message := self._channel.receive()) is not None:
            if "stdout" in message:
                _write(sys.stdout.fileno(), unpacked(message["stdout"]))
            elif "stderr" in message:
                _write(sys.stderr.fileno(), unpacked(message["stderr"]))
            elif message.get("exit_code") is not None:
                return int(message["exit_code"])
            elif message.get("signal") is not None:
                return 128 + int(message["signal"])
        raise Unreachable(
            "the stream ended before the command did",
            code="exec/cut-off",
            hint="the command was ended; `argosy status` says whether its node lives",
        )

    def _send(self) -> None:
        try:
            while (message := self._outgoing.get()) is not None:
                self._channel.send(message)
        except Unreachable:
            return  # the receiving side says what became of the program

    def _read_input(self) -> None:
        from argosy.sdk.channels import packed

        stdin = sys.stdin.fileno()
        while not self._over.is_set():
            if not select.select([stdin], [], [], 0.2)[0]:
                continue
            data = os.read(stdin, READ_BYTES)
            if not data:
                self._outgoing.put({"stdin_end": True})
                return
            self._outgoing.put({"stdin": packed(data)})

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Window changes and signals are passed on; the old answers come back."""
        passed = (*_FORWARDED, signal.SIGINT)
        before = {number: signal.signal(number, self._pass_on) for number in passed}
        before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._resize)
        try:
            yield
        finally:
            for number, answer in before.items():
                signal.signal(number, answer)

    def _pass_on(self, number: int, _frame: object) -> None:
        self._outgoing.put({"signal": number})

    def _resize(self, _number: int, _frame: object) -> None:
        if self._tty:
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
            self._outgoing.put({"resize": [rows, columns]})


@contextmanager
def _raw(tty: bool) -> Iterator[None]:
    """The terminal passes every key on, and is as it was afterwards."""
    if not tty:
        yield
        return
    import termios
    import tty as terminals

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    try:
        terminals.setraw(stdin)
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
