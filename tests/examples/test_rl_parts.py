"""The parts of the RL example, without a network: puzzles, gradient, versions, checkpoints."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "rl"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a module of the example as its programs do; they are gone again afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and _folder(sys.modules[name]) == FOLDER:
            del sys.modules[name]


def _folder(module: ModuleType) -> Path:
    return Path(module.__file__ or "").parent


def test_every_prompt_has_one_right_answer_and_no_kind_shares_it(load: Any) -> None:
    puzzles = load("puzzles")
    chance = random.Random(3)
    for for_training in (True, False) * 200:
        digits = puzzles.draw(chance, for_training=for_training)
        answers = [puzzles.right_answer(kind, digits) for kind in puzzles.KINDS]
        assert len(set(answers)) == len(puzzles.KINDS)
        for kind, answer in zip(puzzles.KINDS, answers, strict=True):
            solved = [other for other in answers if puzzles.score(kind, digits, other) == 1.0]
            assert solved == [answer]


def test_what_is_held_out_is_never_trained_on(load: Any) -> None:
    puzzles = load("puzzles")
    chance = random.Random(4)
    trained = {puzzles.draw(chance, for_training=True) for _ in range(500)}
    tested = {puzzles.draw(chance, for_training=False) for _ in range(500)}
    assert not trained & tested
    assert all(map(puzzles.held_out, tested))


def test_gradient_is_that_of_the_objective(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load("policy")
    monkeypatch.setattr(policy, "ENTROPY_BONUS", 0.05)
    chance = np.random.default_rng(1)
    weights = chance.normal(size=policy.SIZE)
    kinds = chance.integers(4, size=12)
    digits = chance.integers(policy.DIGITS, size=(12, policy.LENGTH))
    answers, logps = policy.sample(weights, kinds, digits, chance)
    # Answered by a policy that was a little different: some ratios are clipped, some are not.
    logps = logps + chance.normal(scale=0.15, size=logps.shape)
    gains = chance.normal(size=12)
    batch = policy.Batch(kinds, digits, answers, logps, gains)

    def objective(at: np.ndarray) -> float:
        logp = policy.log_probabilities(at, kinds, digits)
        chosen = np.take_along_axis(logp, answers[:, :, None], axis=2)[:, :, 0]
        ratio = np.exp(chosen - logps)
        clipped = np.clip(ratio, 1 - policy.CLIP, 1 + policy.CLIP)
        pull = np.minimum(ratio * gains[:, None], clipped * gains[:, None])
        entropy = -(np.exp(logp) * logp).sum(axis=2)
        return float((pull + policy.ENTROPY_BONUS * entropy).mean())

    slope = policy.gradient(weights, batch)
    for place in chance.choice(np.flatnonzero(slope), size=40, replace=False):
        step = np.zeros(policy.SIZE)
        step[place] = 1e-5
        measured = (objective(weights + step) - objective(weights - step)) / 2e-5
        assert measured == pytest.approx(slope[place], rel=1e-3, abs=1e-8)


def test_advantages_compare_within_a_group_only(load: Any) -> None:
    policy = load("policy")
    found = policy.advantages(np.array([[0.0, 1.0], [0.5, 0.5]]))
    assert found[0] == pytest.approx([-1.0, 1.0], abs=1e-4)
    assert found[1].tolist() == [0.0, 0.0]


def test_weights_travel_in_single_precision(load: Any) -> None:
    policy = load("policy")
    weights = np.random.default_rng(2).normal(size=policy.SIZE)
    assert np.allclose(policy.unpacked(policy.packed(weights)), weights, atol=1e-6)


def test_rollout_refuses_older_weights_and_takes_those_of_a_later_life(load: Any) -> None:
    rollout, net, policy = load("rollout_server").Rollout(), load("net"), load("policy")
    text = policy.packed(np.zeros(policy.SIZE))

    def send(version: list[Any]) -> Any:
        return rollout.load({"version": version, "weights": text})["version"]

    assert rollout.version({}) == {"version": None}
    assert send([[1, 1], 40]) == [[1, 1], 40]
    with pytest.raises(net.Refused, match="older") as refused:
        send([[1, 1], 39])
    assert refused.value.status == 409
    assert send([[1, 2], 30]) == [[1, 2], 30]
    with pytest.raises(net.Refused):
        send([[1, 1], 41])
    assert send([[2, 1], 0]) == [[2, 1], 0]


def test_rollout_without_weights_answers_503(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, net = load("rollout_server"), load("net")
    monkeypatch.setattr(server, "WAIT", 0.0)
    with pytest.raises(net.Refused) as refused:
        server.Rollout().generate({"prompts": [], "samples": 1})
    assert refused.value.status == 503


def test_buffer_drops_what_another_life_or_an_old_step_caused(load: Any) -> None:
    buffer = load("replay_buffer").Buffer()
    versions = [[[1, 1], 50], [[1, 2], 29], [[1, 2], 30], [[1, 2], 31]]
    buffer.put({"groups": [{"version": version} for version in versions]})
    found = buffer.take({"n": 2, "life": [1, 2], "oldest_step": 30})
    assert [group["version"][1] for group in found["groups"]] == [30, 31]
    assert found["dropped"] == 2


def test_buffer_hands_each_group_out_once(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, net = load("replay_buffer"), load("net")
    monkeypatch.setattr(server, "WAIT", 0.0)
    buffer, wish = server.Buffer(), {"n": 1, "life": [1, 1], "oldest_step": 0}
    buffer.put({"groups": [{"version": [[1, 1], 1]}]})
    buffer.take(wish)
    with pytest.raises(net.Refused, match="not enough"):
        buffer.take(wish)


def test_a_full_buffer_makes_the_giver_wait(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, net = load("replay_buffer"), load("net")
    monkeypatch.setattr(server, "WAIT", 0.0)
    buffer = server.Buffer()
    buffer.put({"groups": [{"version": [[1, 1], 1]}] * server.CAPACITY})
    with pytest.raises(net.Refused, match="full"):
        buffer.put({"groups": [{"version": [[1, 1], 1]}]})


def test_newest_whole_checkpoint_is_found(load: Any, tmp_path: Path) -> None:
    checkpoint, policy = load("checkpoint"), load("policy")
    assert checkpoint.newest(tmp_path / "none-yet") is None
    for step in (50, 100, 150, 200):
        state = checkpoint.State(step, np.full(policy.SIZE, step), policy.Adam.fresh())
        checkpoint.save(tmp_path, state)
    assert len(list(tmp_path.iterdir())) == checkpoint.KEEP
    newest = tmp_path / "step-000200.npz"
    newest.write_bytes(newest.read_bytes()[:-500])
    found = checkpoint.newest(tmp_path)
    assert (found.step, found.weights[0]) == (150, 150.0)
