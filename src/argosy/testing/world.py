"""A simulated world: groups, hosts, agents, programs and a server, under one seed.

The server runs the real `decide` and `check`; all else is played. Time is a heap of events.
`active` is the time that programs and timers live by; `slept` is what suspends of the whole machine
add to it on the clock.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from argosy.model.action import Limits
from argosy.model.ids import InfraName
from argosy.testing.invariants import Truth, Violation
from argosy.testing.narrate import Story
from argosy.testing.world_agent import Host
from argosy.testing.world_control import Server
from argosy.testing.world_infra import SimInfra
from argosy.testing.world_programs import Behaviours
from argosy.testing.world_store import SimStore

START = 1_700_000_000.0  # seconds since the epoch when a world begins


class World:
    """Everything there is. `at(...)` plans an event; `run(...)` lets time pass."""

    def __init__(
        self, seed: int, *, limits: Limits | None = None, calm: bool = False, fast: bool = False
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.limits = limits or Limits()
        self.calm = calm  # every delay is the same: for stories
        self.quiet = False  # the liveness phase: no more faults
        self.active = 0.0
        self.slept = 0.0
        self.wall_offset = 0.0
        self.to_come = 0  # groups that are still to be submitted
        self.heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.order = 0
        self.strikes: Counter[str] = Counter()
        self.infras: dict[InfraName, SimInfra] = {}
        self.story = Story(START)
        self.truth = Truth(self)
        self.store = SimStore(self)
        self.behaviours = Behaviours(self)
        self.server = Server(self, every=7 if fast else 1)

    # --- time ------------------------------------------------------------------------------------

    def clock(self) -> float:
        """Seconds since the epoch, sleeps of the machine included."""
        return START + self.active + self.slept

    def after(self, seconds: float, fn: Callable[..., None], *args: Any) -> None:
        """Let `fn(*args)` happen after so many seconds of active time."""
        self.order += 1
        heapq.heappush(self.heap, (self.active + seconds, self.order, fn, args))

    def run(self, seconds: float) -> None:
        """Let so many seconds of active time pass."""
        self.run_until(self.active + seconds, lambda: False)

    def run_until(self, end: float, over: Callable[[], bool]) -> bool:
        """Let time pass until `over()`, or until `end` in active time; whether it was over."""
        heap = self.heap
        while heap and heap[0][0] <= end:
            at, _, fn, args = heapq.heappop(heap)
            self.active = max(self.active, at)
            fn(*args)
            if over():
                return True
        self.active = max(self.active, end)
        return over()

    def suspend(self, seconds: float) -> None:
        """The whole machine sleeps: the clock goes on, nothing else does."""
        self.slept += seconds
        self.say("machine", "was suspended for {} s", seconds)
        self.server.gap(seconds)

    # --- chance ----------------------------------------------------------------------------------

    def delay(self, low: float, high: float) -> float:
        """A latency between the two; always `low` in a calm world."""
        return low if self.calm else low + (high - low) * self.rng.random()

    def chance(self, likely: float) -> bool:
        """True with this probability; never in a calm or quiet world."""
        return not self.calm and not self.quiet and self.rng.random() < likely

    def strike(self, fault: str) -> None:
        """A fault really struck."""
        self.strikes[fault] += 1

    # --- words -----------------------------------------------------------------------------------

    def say(self, who: str, text: str, *about: Any) -> None:
        """One line of the story."""
        self.story.say(self.clock(), who, text, *about)

    # --- places -------------------------------------------------------------------------------

    def add_infra(self, name: InfraName, *, elastic: float = 0.0) -> SimInfra:
        """A pool without hosts yet, or a cloud of so many cores."""
        infra = self.infras[name] = SimInfra(self, name, elastic=elastic)
        return infra

    def hosts(self) -> list[Host]:
        """Every host that exists."""
        return [host for infra in self.infras.values() for host in infra.hosts.values()]

    # --- the end ---------------------------------------------------------------------------------

    def calm_down(self) -> None:
        """Faults off: cuts heal, hosts thaw and come back, agents start, programs end."""
        self.quiet = True
        self.say("world", "faults are over")
        for infra in self.infras.values():
            infra.heal()
        self.behaviours.calm_down()
        self.server.heal()

    def at_rest(self) -> bool:
        """Every group is over and clean, and nothing of any is left anywhere."""
        return self.store.all_clean() and not any(
            infra.held or any(host.programs for host in infra.hosts.values())
            for infra in self.infras.values()
        )

    def settle(self, within: float = 8000.0) -> None:
        """The liveness phase. Raises Violation when the world does not come to rest in time."""
        self.calm_down()
        end = self.active + within
        while self.active < end and not self.at_rest():
            self.run(5.0)
            self.clean_strangers()
        if not self.at_rest():
            raise Violation("it does not come to rest: " + "; ".join(self.unrest()))
        self.truth.at_the_end()

    def clean_strangers(self) -> None:
        """`infra clean`: a user removes what bears a mark that a restored store never issued."""
        for infra in self.infras.values():
            for lease in [one for one in infra.held if one not in self.store.issued]:
                infra.release(lease)

    def unrest(self) -> list[str]:
        """What still goes on, in words."""
        words = [
            f"{g.spec.name} is {g.phase} clean={g.clean}"
            for g in self.store.records.values()
            if not (g.phase.final and g.clean)
        ]
        for infra in self.infras.values():
            words += [f"{infra.name} holds {self.story.name(lease)}" for lease in infra.held]
            words += [
                f"{host.name} runs {self.story.name(one)}"
                for host in infra.hosts.values()
                for one in host.programs
            ]
        return words
