"""`cp`: files and folders to and from a node's working directory."""

from __future__ import annotations

import io
import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from argosy.cli.address import AddressType, one_node
from argosy.cli.screen.paint import say
from argosy.errors import AccessError, InputError, NotFound, Unreachable
from argosy.sdk.client import Client
from argosy.views.text import size

if TYPE_CHECKING:
    from argosy.sdk.channels import Channel

CHUNK_BYTES = 1 << 18
MISSING = "agent/cannot-get"  # the agent's code for what it can't open


@click.command()
@click.argument("source", type=AddressType())
@click.argument("destination", type=AddressType())
def cp(source: str, destination: str) -> int:
    """Copy SOURCE to DESTINATION; one of them is GROUP/TASK/I:PATH, the other a local path.

    PATH counts from the node's working directory. Folders are copied whole; `-` is standard
    input or output.
    """
    there, here = _remote(source), _remote(destination)
    if (there is None) == (here is None):
        raise InputError(
            "one side of cp must be on a node, the other here",
            code="flag/copy",
            hint="write GROUP/TASK/I:PATH for the node: `argosy cp rl/trainer/0:model.npz .`",
        )
    client = Client()
    if there is not None:
        count = _get(client, *there, destination)
    else:
        assert here is not None
        count = _put(client, source, *here)
    say(f"argosy: {size(count)} copied")
    return 0


def _remote(text: str) -> tuple[str, str] | None:
    """Address and path of `GROUP/TASK/I:PATH`; None: a local path."""
    address, colon, path = text.partition(":")
    if not colon or address.startswith((".", "/", "~")):
        return None
    return address, path or "."


def _open(client: Client, address: str, **query: object) -> Channel:
    ref, task, index = one_node(client, address)
    return client.channel(ref, "copy", {"task": task, "index": index, **query})


def _put(client: Client, source: str, address: str, path: str) -> int:
    local = Path(source)
    if source != "-" and not local.exists():
        raise NotFound(f"there is no file {local}", code="file/missing", hint="see `ls`")
    folder = source != "-" and local.is_dir()
    if path.endswith("/") or path == ".":
        path = f"{path.rstrip('/')}/{local.absolute().name}"
    mode = stat.S_IMODE(local.stat().st_mode) if source != "-" else 0o644
    channel = _open(
        client, address, path=path, direction="put", tar=1 if folder else None, mode=mode
    )
    try:
        try:
            sent = _send(channel, _tarred(local) if folder else _pieces(source))
        except Unreachable:
            channel.receive()  # what the node said before it closed the stream
            raise
        answer = channel.receive()
    finally:
        channel.close()
    if answer is None or not answer.get("ok"):
        raise Unreachable(
            "the node did not say that the file has arrived",
            code="copy/unconfirmed",
            hint="repeat the command",
        )
    return sent


def _send(channel: Channel, pieces: Iterator[bytes]) -> int:
    from argosy.sdk.channels import packed

    sent = 0
    for piece in pieces:
        channel.send({"data": packed(piece)})
        sent += len(piece)
    channel.send({"end": True})
    return sent


def _pieces(source: str) -> Iterator[bytes]:
    opened: BinaryIO = sys.stdin.buffer if source == "-" else open(source, "rb")  # noqa: SIM115
    with opened:
        while piece := opened.read(CHUNK_BYTES):
            yield piece


def _tarred(folder: Path) -> Iterator[bytes]:
    """The folder's content as a tar stream, member by member."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, arcname=str(path.relative_to(folder)), recursive=False)
            if out.tell() >= CHUNK_BYTES:
                yield out.getvalue()
                out.seek(0)
                out.truncate()
    yield out.getvalue()


def _get(client: Client, address: str, path: str, destination: str) -> int:
    """A file, or a folder: the node's first message says which."""
    target = Path(destination)
    if destination != "-" and (target.is_dir() or destination.endswith("/")):
        target = target / os.path.basename(path.rstrip("/"))
    channel = _open(client, address, path=path, direction="get")
    try:
        # An error of the node comes with the first message, before anything is made here.
        incoming = _asked(channel, address, path)
        if destination == "-":
            return sum(sys.stdout.buffer.write(piece) for piece in incoming.pieces())
        return _unpack(incoming, target) if incoming.is_folder else _keep(incoming, target)
    finally:
        channel.close()


def _asked(channel: Channel, address: str, path: str) -> _Incoming:
    """What the node sends. Raises NotFound in the user's words, not with the node's own paths."""
    try:
        return _Incoming(channel)
    except NotFound as error:
        if error.code != MISSING or "[Errno 2]" not in error.text:
            raise
        folder = os.path.dirname(path.rstrip("/")) or "."
        raise NotFound(
            f"there is no {path} on {address}",
            code="copy/missing",
            hint=f"`argosy exec {address} -- ls -la {folder}` lists the folder",
        ) from error


class _Incoming:
    """What a node sends of a file, or of a folder as tar."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._first = self._next()
        self.is_folder = bool(self._first.get("tar"))
        self.mode: int | None = None  # known at the end

    def pieces(self) -> Iterator[bytes]:
        """The bytes. Raises Unreachable when they end too early."""
        from argosy.sdk.channels import unpacked

        message = self._first
        while True:
            if "data" in message:
                yield unpacked(message["data"])
            if message.get("end"):
                self.mode = message.get("mode")
                return
            message = self._next()

    def _next(self) -> dict[str, Any]:
        message = self._channel.receive()
        if message is None:
            raise Unreachable(
                "the file was cut off", code="copy/cut-off", hint="repeat the command"
            )
        return message


def _keep(incoming: _Incoming, target: Path) -> int:
    """Write a file beside its place, then put it there: half a file is never seen."""
    if not target.parent.is_dir():
        raise NotFound(
            f"there is no folder {target.parent}", code="file/missing", hint="make it first"
        )
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as out:
            count = sum(out.write(piece) for piece in incoming.pieces())
        if incoming.mode is not None:
            temporary.chmod(incoming.mode & 0o777)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _unpack(incoming: _Incoming, target: Path) -> int:
    reader = _Stream(incoming.pieces())
    with tarfile.open(fileobj=reader, mode="r|") as archive:
        target.mkdir(parents=True, exist_ok=True)
        left = _extract(archive, target)
    if left:
        say(f"argosy: left out {left} devices, and links that lead out of the folder")
    return reader.count


def _extract(archive: tarfile.TarFile, target: Path) -> int:
    """Nothing outside the folder, nobody else's files; how many links that lead out of it, and
    devices, were left out.

    Newer Pythons have a filter for that; Debian 12's 3.11.2 has none.
    """
    left = 0
    if not hasattr(tarfile, "data_filter"):
        return _extract_by_hand(archive, target)

    def kept(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        nonlocal left
        try:
            return tarfile.data_filter(member, path)
        except (
            tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError,
            tarfile.SpecialFileError,
        ):  # fmt: skip
            left += 1
            return None
        except tarfile.FilterError as error:
            raise _foreign(member, target) from error

    archive.extractall(target, filter=kept)
    return left


def _extract_by_hand(archive: tarfile.TarFile, target: Path) -> int:
    root, left = target.resolve(), 0
    for member in archive:
        place = (root / member.name).resolve()
        if not place.is_relative_to(root):
            raise _foreign(member, target)
        end = place
        if member.issym():
            end = (place.parent / member.linkname).resolve()
        if member.islnk():
            end = (root / member.linkname).resolve()
        known = member.isfile() or member.isdir() or member.issym() or member.islnk()
        if not known or not end.is_relative_to(root):
            left += 1
            continue
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        member.mode = (member.mode | 0o600) & 0o755
        archive.extract(member, root)
    return left


def _foreign(member: tarfile.TarInfo, target: Path) -> AccessError:
    return AccessError(
        f"the node sent {member.name!r}, which does not belong into {target}",
        code="copy/outside",
        hint="copy the files that you need one by one",
    )


class _Stream(io.RawIOBase):
    """Pieces as a file that a tar reader takes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self.count = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes."""
        while size < 0 or len(self._rest) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._rest += piece
            self.count += len(piece)
        taken = len(self._rest) if size < 0 else size
        data, self._rest = self._rest[:taken], self._rest[taken:]
        return data
