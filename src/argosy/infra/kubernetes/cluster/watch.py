"""All objects of one kind that bear a label, as the API server has them: kept current by a watch.

A watch that ends goes on where it was; one that is too old for the server (410) is begun anew by
a list. While the server cannot be reached the objects stay as they were seen, and `current` is
false. Pauses between tries grow, with jitter, until a watch has stood for a while or has said
something: a server that ends every watch at once is not asked in a circle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from argosy.errors import ArgosyError, InfraError
from argosy.infra.kubernetes.cluster.backoff import Backoff, now
from argosy.infra.kubernetes.cluster.client import Cluster, Json
from argosy.infra.kubernetes.cluster.failures import Refused

LOG: Final = logging.getLogger("argosy.infra.kubernetes")
PAGE: Final = "500"  # objects of one answer
WATCH_SECONDS: Final = "300"
PAUSE_FIRST, PAUSE_MOST = 0.4, 10.0  # seconds after failures in a row; doubles, with jitter
STANDS: Final = 5.0  # seconds after which a watch has been a success
GONE: Final = 410


class Watched:
    """The objects, by name, with their namespace where several are watched. `changed` is called
    after every change of them, or of `current`.
    """

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        selector: str,
        changed: Callable[[], None],
        *,
        who: str,
        kept: Callable[[Json], Any] = lambda item: item,
        **query: str,
    ) -> None:
        """`who` watches; `kept`: what is kept of an object."""
        self.items: dict[str, Any] = {}
        self.current = False
        self.trouble: ArgosyError | None = None  # why it is not current
        self._cluster, self._path = cluster, path
        self._query = {**query, **({"labelSelector": selector} if selector else {})}
        self._changed, self._kept = changed, kept
        self._version = ""  # "": a list comes first
        self._failures = 0  # in a row
        self._backoff = Backoff(f"{who} {path}", PAUSE_FIRST, PAUSE_MOST)
        self._begun_at: float | None = None  # when the server agreed to the watch; None: not yet
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Watch, unless it does."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"watch {self._path}")

    async def ready(self, seconds: float) -> bool:
        """Begin, if need be, and wait for the first list; whether it is current then."""
        self.begin()
        if not self.current and self._failures == 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._synced.wait()
            except TimeoutError:
                pass
        return self.current

    def put(self, item: Json, *, newer: bool = False) -> None:
        """Take in an object as an answer showed it: the watch may be behind. `newer`: than the one
        that is here; where none is here it was deleted meanwhile.
        """
        name = self._key(item)
        if newer == (name in self.items) and not self._has_passed(item):
            self.items[name] = self._kept(item)

    def _has_passed(self, item: Json) -> bool:
        """Whether the watch has seen that state, or what came after it: its end, say."""
        mine, other = self._version, str(item["metadata"].get("resourceVersion", ""))
        return mine.isdecimal() and other.isdecimal() and int(other) <= int(mine)

    def _key(self, item: Json) -> str:
        name = str(item["metadata"]["name"])
        several = "/namespaces/" not in self._path and "namespace" in item["metadata"]
        return f"{item['metadata']['namespace']}/{name}" if several else name

    async def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            self._begun_at = None
            try:
                if not self._version:
                    await self._list()
                await self._follow()
                await self._ended()
            except Refused as error:
                if error.status == GONE:
                    await self._begin_anew()
                else:
                    told = self._cluster.translated(error, "show its objects")
                    await self._failed(told, error.retry_after)
            except ArgosyError as error:
                await self._failed(error)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                # An object that nobody expected must not end the watch.
                LOG.exception("watch-failed")
                self._version = ""
                await self._failed(
                    InfraError(f"{self._cluster.infra} shows what is not understood: {error!r}")
                )

    async def _ended(self) -> None:
        """The server ended the watch, as it does after some minutes: go on where it was."""
        if not self._stood():
            await asyncio.sleep(self._backoff.pause())

    def _stood(self) -> bool:
        """Whether the watch stood for a while: then it was a success, whatever its end."""
        stood = self._begun_at is not None and now() - self._begun_at >= STANDS
        if stood:
            self._succeeded()
        return stood

    def _succeeded(self) -> None:
        self._failures, self._backoff.tries = 0, 0

    async def _begin_anew(self) -> None:
        """Where we are is too old for the server. At once, unless that was so a moment ago."""
        self._version = ""
        self._stood()
        pause = self._backoff.pause()
        if self._backoff.tries > 1:
            await asyncio.sleep(pause)

    async def _failed(self, error: ArgosyError, at_least: float = 0.0) -> None:
        self._stood()
        self._failures += 1
        self.trouble = error
        # One watch that breaks is no news: the next begins at once.
        if self._failures > 1 and self.current:
            self.current, self._version = False, ""  # a list shows at once that it is back
            LOG.warning("%s", error.text)
            self._changed()
        if self._failures > 1 or not self.current:
            self._synced.set()
            self._changed()
        await asyncio.sleep(self._backoff.pause(at_least))

    async def _list(self) -> None:
        found: dict[str, Any] = {}
        more: dict[str, str] = {}
        while True:
            answer = await self._cluster.get_once(self._path, limit=PAGE, **self._query, **more)
            for item in answer.get("items") or ():
                found[self._key(item)] = self._kept(item)
            token = answer["metadata"].get("continue")
            if not token:
                break
            more = {"continue": token}
        self.items, self._version = found, answer["metadata"]["resourceVersion"]
        if not self._failures:  # else once the watch stands, too: a list alone grows old
            self._is_current()
        self._changed()

    def _begun(self) -> None:
        self._begun_at = now()
        self._is_current()

    def _is_current(self) -> None:
        self.trouble = None
        if not self.current:
            self.current = True
            self._synced.set()
            self._changed()

    async def _follow(self) -> None:
        """Take in events until the server ends the watch."""
        events = self._cluster.watch(
            self._path,
            self._version,
            self._begun,
            timeoutSeconds=WATCH_SECONDS,
            **self._query,
        )
        async for event in events:
            item = event["object"]
            if event["type"] == "ERROR":
                code = int(item.get("code") or 0)
                raise Refused(code, str(item.get("reason")), str(item.get("message")))
            self._version = item["metadata"]["resourceVersion"]
            self._succeeded()
            if event["type"] == "BOOKMARK":
                continue
            name = self._key(item)
            if event["type"] == "DELETED":
                self.items.pop(name, None)
            else:
                self.items[name] = self._kept(item)
            self._changed()
