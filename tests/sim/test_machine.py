"""A Hypothesis state machine over the same world: it chooses the faults, and shrinks what fails."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from argosy.testing.faults import EVERYWHERE
from argosy.testing.scenario import drawn_world
from argosy.testing.world import World

FAULTS = tuple(fault for fault, _ in EVERYWHERE)


class WorldMachine(RuleBasedStateMachine):
    """Time passes and faults strike in any order; in the end all comes to rest."""

    world: World | None = None

    @initialize(seed=st.integers(0, 10_000))
    def begin(self, seed: int) -> None:
        self.world = drawn_world(seed, faults=0)
        self.world.run(10.0)

    @precondition(lambda self: self.world is not None)
    @rule(seconds=st.sampled_from((0.05, 0.5, 3.0, 20.0)))
    def time_passes(self, seconds: float) -> None:
        assert self.world is not None
        self.world.run(seconds)

    @precondition(lambda self: self.world is not None)
    @rule(fault=st.sampled_from(FAULTS))
    def strike(self, fault: object) -> None:
        assert self.world is not None
        assert callable(fault)
        fault(self.world)

    def teardown(self) -> None:
        if self.world is not None:
            self.world.run(40.0)
            self.world.settle()


TestWorld = WorldMachine.TestCase
TestWorld.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
