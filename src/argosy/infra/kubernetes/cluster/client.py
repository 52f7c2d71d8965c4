"""A connection to one API server: requests, watches, and streams of `exec`, as JSON and bytes.

Sign-in is that of the user's kubeconfig, or of the pod that we run in: `kubernetes-asyncio` knows
tokens, client certificates, plugins and how they are renewed. What is sent stands in compose.py;
its classes for each kind of object are not used.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from argosy.errors import AccessError, ArgosyError, InfraError
from argosy.infra.kubernetes.cluster.backoff import Backoff, now
from argosy.infra.kubernetes.cluster.exec_stream import ExecStream
from argosy.infra.kubernetes.cluster.failures import (
    BUSY,
    FORBIDDEN,
    INSTALL,
    Refused,
    no_answer,
    refused,
    seconds_asked,
    translated,
)
from argosy.infra.kubernetes.cluster.sockets import Sockets
from argosy.infra.kubernetes.config import IN_CLUSTER, ContextConfig

if TYPE_CHECKING:
    import aiohttp

LOG: Final = logging.getLogger("argosy.infra.kubernetes")
SECONDS: Final = 15.0  # for one request
# What a refused exec means; its answer has no text.
EXEC_SAYS: Final = {
    400: "it is gone, or does not run", 404: "it is gone, or does not run",
    FORBIDDEN: 'whoever signs in cannot "create" and "get" resource "pods/exec"',
}  # fmt: skip
BUSY_SECONDS: Final = 30.0  # that a request is tried again while the server is busy
BUSY_FIRST, BUSY_MOST = 0.25, 8.0  # seconds between two tries; doubles, with jitter
UNAUTHORIZED: Final = 401
CONNECT_SECONDS: Final = 10.0
MESSAGE_MAX: Final = 8 << 20  # bytes of one message of an exec stream
KEEP_ALIVE: Final = (
    (socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3),
    (socket.TCP_USER_TIMEOUT, 30_000),
)  # fmt: skip
MERGE: Final = "application/merge-patch+json"
OWN_NAMESPACE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
DEFAULT_NAMESPACE: Final = "default"

Json = dict[str, Any]


class Cluster:
    """One API server, as one user. Opened when it is first asked.

    A request that the server is too busy for (429, 5xx) is tried again for a while: each of ours
    may be repeated. Making what is there already is told (409), as is deleting what is gone (404).
    """

    def __init__(self, infra: str, config: ContextConfig) -> None:
        self.infra, self.config = infra, config
        self.namespace = config.namespace  # "" until it was opened
        self.execs = 0  # streams that were opened
        self._opening = asyncio.Lock()
        self._sockets = Sockets()
        self._api: Any = None  # kubernetes_asyncio's ApiClient
        self._former: list[Any] = []  # of earlier sign-ins: streams may go on through them
        self._read: tuple[float, ...] = ()  # when the files were written that it was made from
        self._unknown = False  # the server does not know who we are

    # --- requests --------------------------------------------------------------------------------

    async def get(self, path: str, **query: str) -> Json:
        """An object, or a list. Raises Refused, Unreachable, AccessError."""
        return await self._request("GET", path, query=query)

    async def get_once(self, path: str, **query: str) -> Json:
        """The same for whoever waits for a busy server on their own."""
        return await self._try("GET", path, query=query)

    async def post(self, path: str, body: Json, **query: str) -> Json:
        """Make an object; its new state."""
        return await self._request("POST", path, body=body, query=query)

    async def patch(self, path: str, body: Json) -> Json:
        """Change an object by a merge patch (RFC 7386)."""
        return await self._request("PATCH", path, body=body, kind=MERGE)

    async def delete(self, path: str, body: Json | None = None) -> Json:
        """Delete an object; `body` holds DeleteOptions."""
        return await self._request("DELETE", path, body=body)

    def translated(self, error: Refused, doing: str) -> ArgosyError:
        """The error for people."""
        return translated(error, self.infra, doing)

    async def _request(self, method: str, path: str, **what: Any) -> Json:
        """As `_try`; a busy server is asked again."""
        name = ((what.get("body") or {}).get("metadata") or {}).get("name", "")
        backoff = Backoff(f"{method} {path} {name}", BUSY_FIRST, BUSY_MOST)
        until = now() + BUSY_SECONDS
        while True:
            try:
                return await self._try(method, path, **what)
            except Refused as error:
                pause = backoff.pause(error.retry_after)
                if error.status not in BUSY or now() + pause > until:
                    raise
                LOG.info("busy %s %s: %s; again in %.2f s", method, path, error, pause)
            await asyncio.sleep(pause)

    async def _try(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> Json:
        import aiohttp

        try:
            async with asyncio.timeout(SECONDS):
                session, url, headers = await self._ready(path)
                given = None if body is None else json.dumps(body)
                headers["Content-Type"] = kind
                async with session.request(
                    method, url, params=query, data=given, headers=headers, **self._tls()
                ) as answer:
                    read = await answer.read()
                    self._unknown = answer.status == UNAUTHORIZED
                    if answer.status >= 400:
                        raise refused(answer.status, read, answer.headers)
                    return cast(Json, json.loads(read))
        except TimeoutError as error:
            raise no_answer(self.infra, TimeoutError(f"not within {SECONDS:g} s")) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise no_answer(self.infra, error) from error

    async def watch(
        self, path: str, version: str, begun: Callable[[], None], **query: str
    ) -> AsyncIterator[Json]:
        """The events after a resourceVersion, until the server ends the watch. `begun` is called
        once the server has agreed. Raises Refused, Unreachable.
        """
        import aiohttp

        session, url, headers = await self._ready(path)
        seconds = float(query.get("timeoutSeconds", "300"))
        # Bookmarks come about once a minute: a watch that is silent for longer is cut off.
        quiet = aiohttp.ClientTimeout(total=seconds + 60, sock_read=100.0, connect=CONNECT_SECONDS)
        query = {**query, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        try:
            async with session.get(
                url, params=query, headers=headers, timeout=quiet, **self._tls()
            ) as answer:
                self._unknown = answer.status == UNAUTHORIZED
                if answer.status >= 400:
                    raise refused(answer.status, await answer.read(), answer.headers)
                begun()
                async for line in _lines(answer.content):
                    yield json.loads(line)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise no_answer(self.infra, error) from error

    async def exec(self, pod: str, argv: list[str]) -> ExecStream:
        """The streams of a command in the pod's container. Raises Refused, Unreachable."""
        import aiohttp

        self.execs += 1

        query = [("command", word) for word in argv]
        query += [("container", "argosy"), ("stdin", "1"), ("stdout", "1"), ("stderr", "1")]
        path = f"{self.in_namespace('pods')}/{pod}/exec"
        try:
            async with asyncio.timeout(SECONDS):
                session, url, headers = await self._ready(path)
                # aiohttp turns http(s) into ws(s).
                stream = await session.ws_connect(
                    url,
                    params=query,
                    headers=headers,
                    protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"),
                    max_msg_size=MESSAGE_MAX,
                    **self._tls(),
                )
        except aiohttp.WSServerHandshakeError as error:
            self._unknown = error.status == UNAUTHORIZED
            text = f"{EXEC_SAYS.get(error.status, error.message)} (HTTP {error.status})"
            raise Refused(error.status, "", text, seconds_asked(error.headers or {})) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise no_answer(self.infra, error) from error
        keep_alive(stream.get_extra_info("socket"))
        return ExecStream(stream)

    def in_namespace(self, what: str, name: str = "") -> str:
        """The path of the core objects of a kind in our namespace, or of one."""
        path = f"/api/v1/namespaces/{self.namespace}/{what}"
        return f"{path}/{name}" if name else path

    async def close(self) -> None:
        """Let go of the connections."""
        self._retire()
        former, self._former = self._former, []
        for api in former:
            await api.close()
        await self._sockets.closed()

    # --- opening ---------------------------------------------------------------------------------

    async def _ready(self, path: str) -> tuple[aiohttp.ClientSession, str, dict[str, str]]:
        """(session, address, headers that say who we are). Raises AccessError."""
        api = await self.open()
        settings = await api.configuration.auth_settings()
        headers = {
            found["key"]: found["value"]
            for found in settings.values()
            if found["in"] == "header" and found["value"]
        }
        session: aiohttp.ClientSession = api.rest_client.pool_manager
        return session, api.configuration.host + path, headers

    def _tls(self) -> dict[str, Any]:
        """What each call needs beside the session's own settings."""
        found = {"proxy": self._api.rest_client.proxy}
        name = self._api.rest_client.server_hostname
        return {**found, "server_hostname": name} if name else found

    async def open(self) -> Any:
        """Read who we are, unless that is known; the library's client. Raises AccessError,
        InfraError.
        """
        async with self._opening:
            written = await asyncio.to_thread(self._written)
            if self._unknown and written != self._read:  # somebody has signed in again
                self._retire()
            if self._api is None:
                try:
                    self._api, self._read = await self._open(written), written
                    self._unknown = False
                except ArgosyError:
                    raise
                except Exception as error:  # of the library: any
                    raise AccessError(
                        f"{self.infra}: nobody can sign in: {error}",
                        code="kubernetes/no-sign-in",
                        hint=f"see that `kubectl --context {self.config.context} get pods` works",
                    ) from error
        return self._api

    def _no_file(self) -> AccessError:
        own = (
            f"config.yaml has it as the `kubeconfig` of {self.config.name!r}: `argosy config edit`"
        )
        given = "the server reads the $KUBECONFIG that it was started with: `argosy server stop`"
        return AccessError(
            f"{self.infra}: there is no kubeconfig {' or '.join(map(str, self._files()))}",
            code="kubernetes/no-kubeconfig",
            hint=own if self.config.kubeconfig else given,
        )

    def _retire(self) -> None:
        if self._api is not None:
            self._former.append(self._api)
            self._api = None

    def _files(self) -> list[Path]:
        """The kubeconfig: of several files all count."""
        named = self.config.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        return [Path(one).expanduser() for one in named.split(os.pathsep) if one]

    def _written(self) -> tuple[float, ...]:
        """When each file of the kubeconfig was written; blocks."""
        return tuple(path.stat().st_mtime for path in self._files() if path.exists())

    async def _open(self, written: tuple[float, ...]) -> Any:
        try:
            client, config = await asyncio.to_thread(_library)
        except ImportError as error:
            raise InfraError(
                f"{self.infra} needs the package kubernetes-asyncio",
                code="kubernetes/not-installed",
                hint=INSTALL,
            ) from error
        settings = client.Configuration()
        settings.connection_pool_maxsize = 0  # streams of exec are held for long
        if self.config.context == IN_CLUSTER:
            config.load_incluster_config(settings)
            self.namespace = self.namespace or await asyncio.to_thread(_own_namespace)
        else:
            if not written:
                raise self._no_file()
            file = self.config.kubeconfig or None
            await config.load_kube_config(
                config_file=file,
                context=self.config.context,
                client_configuration=settings,
                persist_config=False,
            )
            known, _ = await asyncio.to_thread(config.list_kube_config_contexts, file)
            of_context = next(one for one in known if one["name"] == self.config.context)
            named = of_context["context"].get("namespace")
            self.namespace = self.namespace or named or DEFAULT_NAMESPACE
        api = client.ApiClient(settings)
        # The library makes the session, so this cannot be given to its connector; that aiohttp
        # still has it by that name is seen by tests/infra/kubernetes/test_sockets.py.
        api.rest_client.pool_manager.connector._socket_factory = self._sockets.make
        return api


def _own_namespace() -> str:
    try:
        return Path(OWN_NAMESPACE).read_text(encoding="utf-8").strip()
    except OSError:
        return DEFAULT_NAMESPACE


def keep_alive(sock: Any) -> None:
    """Let a connection break that is silent because nobody is there: a laptop that slept, say."""
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEP_ALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _library() -> tuple[Any, Any]:
    """The package, which takes 0.4 s to load."""
    from kubernetes_asyncio import client, config

    return client, config


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            parts.append(line)
            yield b"".join(parts)
            parts = []
        if rest:
            parts.append(rest)
