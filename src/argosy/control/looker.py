"""One batched look per infra, whenever an action may have changed something, and now and then.

A look that fails is blind: absence in it is no evidence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from argosy.clock import Clock
from argosy.errors import ArgosyError
from argosy.infra.api import Infra, Watches
from argosy.model.observed import Look

log = logging.getLogger("argosy.control.looker")

LOOK_EVERY: Final = 1.0  # seconds, while a group is on the infra
LOOK_TIMEOUT: Final = 60.0
WATCH_RETRY: Final = 5.0
LOOK_SETTLES: Final = 0.004  # what is asked for at about the same time is seen in one look


class Looker:
    """Looks at one infra and hands over what it saw."""

    def __init__(
        self, infra: Infra, clock: Clock, *, busy: Callable[[], bool], saw: Callable[[Look], None]
    ) -> None:
        self.infra = infra
        self._clock, self._busy, self._saw = clock, busy, saw
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Look soon."""
        self._asked.set()

    async def run(self) -> None:
        """Look until the task is cancelled."""
        while True:
            self._asked.clear()
            await self._once()
            every = LOOK_EVERY if self._busy() else None
            try:
                async with asyncio.timeout(every):
                    await self._asked.wait()
                    await self._clock.sleep(LOOK_SETTLES)
            except TimeoutError:
                pass

    async def _once(self) -> None:
        look = await self._look()
        try:
            self._saw(look)
        except ArgosyError as error:  # the store can't be read now: the next look is taken in
            log.warning("look-lost", extra={"infra": self.infra.name, "why": error.text})

    async def _look(self) -> Look:
        """Whatever goes wrong, a look that saw nothing says so."""
        began_at = self._clock.now()
        try:
            async with asyncio.timeout(LOOK_TIMEOUT):
                look = await self.infra.sightings()
        except Exception as error:
            known = isinstance(error, (ArgosyError, OSError))
            extra = {"infra": self.infra.name, "why": str(error)}
            log.warning("look-failed", extra=extra, exc_info=None if known else error)
            return Look(self.infra.name, began_at, blind_all=True)
        return replace(look, began_at=began_at)

    async def watch(self) -> None:
        """Ask for a look whenever the infra says that something changed."""
        assert isinstance(self.infra, Watches)
        while True:
            try:
                await self.infra.changed()
            except (ArgosyError, OSError) as error:  # it is looked at every second anyway
                log.warning("watch-failed", extra={"infra": self.infra.name, "why": str(error)})
                await self._clock.sleep(WATCH_RETRY)
            self.ask()
