"""The trainer: GRPO on two nodes that average their gradients; node 0 is the head.

The head also sends weights to the rollout servers, writes checkpoints and metrics, and at the end
tests the policy on prompts that were never trained on. Killed at any moment, the task goes on from
its newest whole checkpoint.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import checkpoint
import collect
import net
import numpy as np
import policy
from allreduce import Members, PeerLost
from puzzles import KINDS

PORT = 9000  # of the collective
GROUPS_PER_NODE = 16  # in one step
STALE_AFTER = 6  # steps: older answers are not learned from
CHECKPOINT_EVERY = 50
REPORT_EVERY = 40
TEST_PROMPTS = 400


@dataclass(frozen=True)
class Settings:
    """What the environment says."""

    rank: int
    nodes: int
    hostname: str
    steps: int
    rollouts: int
    incarnation: int
    attempt: int
    checkpoints: Path
    shared: Path

    @classmethod
    def read(cls) -> Settings:
        """From the environment that every task gets."""
        env = os.environ
        return cls(
            rank=int(env["ARGOSY_NODE_RANK"]),
            nodes=int(env["ARGOSY_NUM_NODES"]),
            hostname=env["ARGOSY_HOSTNAME"],
            steps=int(env.get("STEPS", "1200")),
            rollouts=int(env.get("ROLLOUTS", "2")),
            incarnation=int(env["ARGOSY_INCARNATION"]),
            attempt=int(env["ARGOSY_ATTEMPT"]),
            checkpoints=Path(env["ARGOSY_CHECKPOINT_DIR"]),
            shared=Path(env["ARGOSY_SHARED_DIR"]),
        )


def take_batch(life: list[int], step: int) -> tuple[policy.Batch, np.ndarray]:
    """Experience for one step of one node, and its figures (see `Report`)."""
    wish = {"n": GROUPS_PER_NODE, "life": life, "oldest_step": step - STALE_AFTER}
    groups = net.call(net.host("replay", 0), "/take", wish)["groups"]
    rewards = np.array([group["rewards"] for group in groups])
    samples = rewards.shape[1]
    kinds = np.array([KINDS.index(group["kind"]) for group in groups])
    batch = policy.Batch(
        kinds=np.repeat(kinds, samples),
        digits=np.repeat(np.array([group["digits"] for group in groups]), samples, axis=0),
        answers=np.concatenate([group["answers"] for group in groups]),
        logps=np.concatenate([group["logps"] for group in groups]),
        advantages=policy.advantages(rewards).reshape(-1),
    )
    age = np.mean([step - 1 - group["version"][1] for group in groups])
    solved = [(rewards[kinds == kind] == 1.0).sum() for kind in range(len(KINDS))]
    asked = [rewards[kinds == kind].size for kind in range(len(KINDS))]
    return batch, np.array([rewards.mean(), age, *solved, *asked])


class Report:
    """Figures of the steps: one line of JSON each, and a line to read every few steps."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._recent: list[np.ndarray] = []
        settings.shared.mkdir(parents=True, exist_ok=True)
        self._file = (settings.shared / "metrics.jsonl").open("a", encoding="utf-8")

    def add(self, step: int, figures: np.ndarray) -> None:
        """`figures`: mean reward, mean age in steps, solved by kind, asked by kind."""
        line = {
            "incarnation": self._settings.incarnation,
            "attempt": self._settings.attempt,
            "step": step,
            "reward": round(float(figures[0]), 4),
            "age": round(float(figures[1]), 2),
            "success": _by_kind(figures),
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        self._recent.append(figures)
        if step % REPORT_EVERY == 0:
            recent = np.mean(self._recent, axis=0)
            print(
                f"step {step} reward {recent[0]:.2f} success {_words(_by_kind(recent))}", flush=True
            )
            self._recent.clear()


def _by_kind(figures: np.ndarray) -> dict[str, float]:
    solved, asked = figures[2 : 2 + len(KINDS)], figures[2 + len(KINDS) :]
    return {kind: round(float(solved[i] / max(asked[i], 1)), 3) for i, kind in enumerate(KINDS)}


def _words(by_kind: dict[str, float]) -> str:
    return " ".join(f"{kind}={share:.2f}" for kind, share in by_kind.items())


def test(weights: np.ndarray) -> dict[str, float]:
    """Share solved by kind, with the most likely answers, on prompts that training never saw."""
    prompts = net.call(net.host("data", 0), "/test-set", {"n": TEST_PROMPTS})["prompts"]
    kinds = np.array([KINDS.index(prompt["kind"]) for prompt in prompts])
    answers = policy.greedy(weights, kinds, np.array([prompt["digits"] for prompt in prompts]))
    asked = {"prompts": prompts, "answers": answers[:, None].tolist()}
    rewards = np.array(net.call(net.host("reward", 0), "/score", asked)["rewards"])[:, 0]
    solved = rewards == 1.0
    return {kind: round(float(solved[kinds == i].mean()), 3) for i, kind in enumerate(KINDS)}


def meet(settings: Settings) -> tuple[Members, list[int], checkpoint.State]:
    """All nodes connected, and agreed on where to go on: on what the head says."""
    if settings.rank > 0:
        members = Members.join(net.host("trainer", 0), PORT)
        told = json.loads(members.hear())
        arrays = np.load(io.BytesIO(members.hear()))
        optimizer = policy.Adam(arrays[1], arrays[2])
        return members, told["life"], checkpoint.State(told["step"], arrays[0], optimizer)
    state = checkpoint.newest(settings.checkpoints)
    if state is None:
        state = checkpoint.State(0, np.zeros(policy.SIZE), policy.Adam.fresh())
    print(f"attempt {settings.attempt} starts from step {state.step}", flush=True)
    members = Members.gather(settings.hostname, PORT, settings.nodes - 1)
    life = [settings.incarnation, settings.attempt]
    members.tell(json.dumps({"life": life, "step": state.step}).encode())
    arrays = io.BytesIO()
    np.save(arrays, np.stack([state.weights, state.optimizer.first, state.optimizer.second]))
    members.tell(arrays.getvalue())
    return members, life, state


def train(settings: Settings) -> None:
    """From the newest checkpoint to the last step."""
    head = settings.rank == 0
    members, life, state = meet(settings)
    if head:
        report, outbox = Report(settings), collect.Outbox(life, settings.rollouts)
        outbox.put(state.step, state.weights)
    collect.start(collect.fetch_for_ever, "fetcher")
    while state.step < settings.steps:
        step = state.step + 1
        batch, figures = take_batch(life, step)
        own = np.concatenate([policy.gradient(state.weights, batch), figures])
        mean = members.mean(own, head=head)
        state.weights = state.optimizer.ascend(state.weights, mean[: policy.SIZE], step)
        state.step = step
        if head:
            outbox.put(step, state.weights)
            report.add(step, mean[policy.SIZE :])
            if step % CHECKPOINT_EVERY == 0 or step == settings.steps:
                checkpoint.save(settings.checkpoints, state)
    if head:
        finish(settings, state)


def finish(settings: Settings, state: checkpoint.State) -> None:
    """The final test: printed, and kept as `result.json`."""
    solved = test(state.weights)
    result = {"steps": state.step, "attempt": settings.attempt, "test": solved}
    (settings.shared / "result.json").write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(f"test after {state.step} steps, unseen prompts: {_words(solved)}", flush=True)


def main() -> int:
    """0 when trained; 1 when a node of the task was lost."""
    settings = Settings.read()
    began = time.monotonic()
    try:
        train(settings)
    except PeerLost as lost:
        # The other node is the cause, and whoever watches us is about to end this one too: leave it
        # the time to, so that the story reads in the right order.
        print(f"the other trainer node is gone ({lost})", flush=True)
        time.sleep(5)
        return 1
    print(f"done in {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
