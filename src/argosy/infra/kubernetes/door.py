"""The listener for agents that dial out (agent/pod/dial.py): TLS, and only the agent protocol.

Each agent keeps one connection open, its door, by which it is asked for streams. It shows the token
of its lease, which is made from our key, so no list of tokens is kept; a token is good as long as
`living` says that its lease is there. The agent knows our certificate from the secret of its pod.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from argosy.errors import InfraError, Unreachable
from argosy.infra.kubernetes.cluster.client import keep_alive
from argosy.infra.kubernetes.cluster.failures import INSTALL
from argosy.infra.stream import READ_AHEAD, Lines
from argosy.model.ids import LeaseId

LOG: Final = logging.getLogger("argosy.infra.kubernetes.door")
FIRST_LINE_SECONDS: Final = 10.0
FIRST_LINE_MAX: Final = 4096  # bytes
SHUTDOWN_SECONDS: Final = 5.0  # for the other side to take its end of a stream
STREAM_SECONDS: Final = 10.0  # from the question to the stream
GOOD: Final = (2020, 2070)  # years of the certificate: a clock of a pod may be wrong
TURNED_AWAY: Final = (
    TimeoutError, ValueError, AttributeError, TypeError, RecursionError, ConnectionError,
    ssl.SSLError,
)  # fmt: skip


class DialedStream(Lines):
    """A stream that an agent has opened to us."""

    def abort(self) -> None:
        """End it at once."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """End the stream; may be repeated."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            pass


class Door:
    """One listener of this server. `address`: HOST:PORT at which agents reach it."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.living: list[Callable[[LeaseId], bool]] = []  # whether a lease is there: any of them
        self._folder = folder
        self._key = b""
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()
        self._doors: dict[LeaseId, asyncio.StreamWriter] = {}
        self._came = asyncio.Condition()
        self._meeting: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._asked: dict[tuple[LeaseId, int], asyncio.Future[DialedStream]] = {}

    async def open(self) -> str:
        """Listen, unless it does; the certificate. Raises InfraError."""
        async with self._opening:
            certificate, key = self._folder / "door.crt", self._folder / "door.key"
            if self._server is None:
                await asyncio.to_thread(_ensure_certificate, certificate, key)
                self._key = hashlib.sha256(await asyncio.to_thread(key.read_bytes)).digest()
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate, key)
                port = int(self.address.rpartition(":")[2])
                try:
                    self._server = await asyncio.start_server(
                        self._met,
                        None,
                        port,
                        ssl=context,
                        ssl_shutdown_timeout=SHUTDOWN_SECONDS,
                        limit=READ_AHEAD,
                    )
                except OSError as error:
                    raise InfraError(
                        f"agents cannot dial in: port {port}: {error.strerror or error}",
                        code="kubernetes/door",
                        hint="free the port, or name another in `server.advertise` of config.yaml",
                        retry=10.0,
                    ) from error
            return await asyncio.to_thread(certificate.read_text, "ascii")

    def token(self, lease: LeaseId) -> str:
        """What the agent of that lease shows; `open` first."""
        return hmac.new(self._key, lease.encode(), hashlib.sha256).hexdigest()

    async def stream(
        self, lease: LeaseId, seconds: float, *, keep: bool = False
    ) -> DialedStream | None:
        """A stream to the agent of that lease, or what `agent keep` writes there; None when it has
        not dialed in meanwhile. Raises Unreachable.
        """
        try:
            async with asyncio.timeout(seconds), self._came:
                await self._came.wait_for(lambda: lease in self._doors)
        except TimeoutError:
            return None
        number = next(self._numbers)
        coming: asyncio.Future[DialedStream] = asyncio.get_running_loop().create_future()
        self._asked[lease, number] = coming
        try:
            writer = self._doors[lease]
            wish = {"open": number, **({"keep": True} if keep else {})}
            writer.write(json.dumps(wish).encode() + b"\n")
            async with asyncio.timeout(STREAM_SECONDS):
                await writer.drain()
                return await coming
        except (TimeoutError, ConnectionError) as error:
            raise Unreachable(
                f"the agent of {lease} does not answer by its door",
                code="kubernetes/no-agent",
                retry=1.0,
            ) from error
        except asyncio.CancelledError:
            if coming.done() and not coming.cancelled():  # it came, and nobody will have it
                coming.result().abort()
            raise
        finally:
            self._asked.pop((lease, number), None)

    async def close(self) -> None:
        """Listen no more, and end all doors; streams go on."""
        if self._server is not None:
            self._server.close()
            for task in self._meeting:
                task.cancel()
            await asyncio.gather(*self._meeting, return_exceptions=True)

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody connected."""
        task = asyncio.current_task()
        assert task is not None
        self._meeting.add(task)
        try:
            await self._let_in(reader, writer)
        except asyncio.CancelledError:  # by `close`: asyncio would tell of it as of a fault
            writer.transport.abort()
        finally:
            self._meeting.discard(task)

    async def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A door or a stream, if the token is right."""
        try:
            async with asyncio.timeout(FIRST_LINE_SECONDS):
                line = await reader.readline()
            said = json.loads(line) if len(line) <= FIRST_LINE_MAX else {}
            lease = LeaseId(str(said.get("door") or said.get("lease") or ""))
            shown = str(said.get("token")).encode("utf-8", "surrogatepass")
            known = hmac.compare_digest(self.token(lease).encode(), shown)
            if not known or not any(lives(lease) for lives in self.living):
                raise ValueError("no token of a lease that is there")
        except TURNED_AWAY as error:
            LOG.info("turned away: %s", error)
            writer.transport.abort()
            return
        keep_alive(writer.get_extra_info("socket"))
        if "door" in said:
            await self._stand(lease, reader, writer)
            return
        future = self._asked.get((lease, int(said.get("stream") or 0)))
        if future is None or future.done():
            writer.transport.abort()
        else:
            future.set_result(DialedStream(reader, writer))

    async def _stand(
        self, lease: LeaseId, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """A door stands open until the other side ends; the newest of a lease counts."""
        before = self._doors.get(lease)
        self._doors[lease] = writer
        if before is not None:
            before.transport.abort()
        async with self._came:
            self._came.notify_all()
        try:
            await reader.read(1)
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            if self._doors.get(lease) is writer:
                del self._doors[lease]
            writer.transport.abort()


def _ensure_certificate(certificate: Path, key: Path) -> None:
    """Make them once; the key is for this user only. Raises InfraError."""
    if certificate.exists() and key.exists():
        return
    try:
        body, secret = _certificate()
    except ImportError as error:
        raise InfraError(
            "`server.advertise` needs the package cryptography",
            code="kubernetes/not-installed",
            hint=INSTALL,
        ) from error
    certificate.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path, text in ((key, secret), (certificate, body)):
        part = path.with_name(path.name + ".part")
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "wb") as file:
            file.write(text)
        part.rename(path)


def _certificate() -> tuple[bytes, bytes]:
    """(certificate, key), signed by itself: whoever dials in knows this very one."""
    from datetime import UTC, datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "argosy")])
    since, until = (datetime(year, 1, 1, tzinfo=UTC) for year in GOOD)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
