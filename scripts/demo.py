"""The demonstration: a small RL group learns, loses its trainer on purpose, resumes and finishes.

`make demo` runs it. It exits 0 only when the reward rose, the trainer resumed from a checkpoint,
and nothing is left running. All goes through the `argosy` command, in a home of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import leftovers

ROOT = Path(__file__).resolve().parents[1]
ARGOSY = Path(sys.executable).with_name("argosy")
GROUP = "rl"
COMMAND_SECONDS = 30.0  # for each command that follows nothing
KILL_AT = 320  # steps of training, when the reward has risen well above chance
RISE = 0.5  # of the reward, from the first report to the last
SOLVED = 0.9  # of the unseen prompts of each kind
BAR = 40  # characters for a reward of 1
EIGHTHS = " ▏▎▍▌▋▊▉"

STEP_LINE = re.compile(r"step (\d+) reward ([\d.]+) success (.*)")
START_LINE = re.compile(r"attempt (\d+) starts from step (\d+)")
TEST_LINE = re.compile(r"test after \d+ steps, unseen prompts: (.*)")
SHARE = re.compile(r"(\w+)=([\d.]+)")


class Failed(Exception):
    """What did not come true."""


@dataclass
class Seen:
    """What the trainer said so far."""

    rewards: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    killed_at: int = 0  # step; 0: not yet
    killed_time: float = 0.0
    resumed_from: int = 0  # step; 0: it has not, or began anew
    attempt: int = 0
    solved: dict[str, float] = field(default_factory=dict)


class Stage:
    """A home of its own, the commands that use it, and its end."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="argosy-demo-"))
        self.environment = {**os.environ, "ARGOSY_HOME": str(self.home)}

    def argosy(self, *words: str, good: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. `good`: raises Failed with what it said when it fails."""
        done = subprocess.run(
            [str(ARGOSY), *words],
            env=self.environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * COMMAND_SECONDS,
        )
        if good and done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise Failed(f"`argosy {' '.join(words)}` exited {done.returncode}:\n{said}")
        return done

    def follow(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Every line of the trainer as it is written, with where it came from, until the end."""
        words = [str(ARGOSY), "logs", "-f", f"{GROUP}/trainer", "-o", "jsonl"]
        with subprocess.Popen(
            words,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                for row in process.stdout:
                    chunk = json.loads(row)
                    for line in chunk["text"].splitlines():
                        yield chunk, line
            finally:
                process.terminate()

    def close(self) -> None:
        """End everything that was started. Raises Failed when something had to be killed."""
        try:
            subprocess.run(
                [str(ARGOSY), "cancel", GROUP, "--now", "--wait"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=COMMAND_SECONDS,
            )
        except subprocess.TimeoutExpired:
            pass  # what does not end is told below
        left = leftovers.end_home(self.home)
        shutil.rmtree(self.home, ignore_errors=True)
        if left:
            raise Failed("did not end by itself:\n" + "\n".join(left))


def main() -> int:
    """0 when all that the demonstration shows came true."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    stage = Stage()
    try:
        seen = _play(stage)
        _judge(seen, stage)
    except Failed as failure:
        print(f"\nerror: the demonstration failed: {failure}", file=sys.stderr)
        _last_words(stage)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; ending the group", file=sys.stderr)
        return 130
    finally:
        _close(stage)
    return 0


def _play(stage: Stage) -> Seen:
    print("$ argosy launch examples/rl/group.yaml")
    stage.argosy(
        "launch", "examples/rl/group.yaml", "-d", "-y", "--env", f"PYTHON={sys.executable}"
    )
    print(f"5 tasks, 7 programs are starting (home: {stage.home})\n")
    print(f"{'step':>6}  {'reward':>6}", flush=True)
    seen = Seen()
    for chunk, line in stage.follow():
        if chunk["index"] == 0:
            _show(seen, chunk["attempt"], line)
        if not seen.killed_at and seen.steps and seen.steps[-1] >= KILL_AT:
            _kill(stage, seen)
    return seen


def _show(seen: Seen, attempt: int, line: str) -> None:
    if found := START_LINE.match(line):
        seen.attempt = int(found[1])
        if seen.attempt > 1:
            seen.resumed_from = int(found[2])
            after = time.monotonic() - seen.killed_time
            print(
                f"        trainer-0@{attempt}: resumed from step {found[2]} after {after:.1f} s\n"
            )
    elif found := STEP_LINE.match(line):
        seen.steps.append(int(found[1]))
        seen.rewards.append(float(found[2]))
        print(f"{seen.steps[-1]:>6}  {seen.rewards[-1]:>6.2f}  {_bar(seen.rewards[-1])}")
    elif found := TEST_LINE.match(line):
        seen.solved = {kind: float(share) for kind, share in SHARE.findall(found[1])}
    sys.stdout.flush()


def _bar(share: float) -> str:
    whole, rest = divmod(round(max(0.0, share) * BAR * 8), 8)
    return "█" * whole + EIGHTHS[rest].strip()


def _kill(stage: Stage, seen: Seen) -> None:
    seen.killed_at, seen.killed_time = seen.steps[-1], time.monotonic()
    print(f"\n$ argosy chaos kill {GROUP}/trainer/0          (SIGKILL, on purpose)", flush=True)
    stage.argosy("chaos", "kill", f"{GROUP}/trainer/0")


def _judge(seen: Seen, stage: Stage) -> None:
    """Say what happened. Raises Failed for what did not."""
    stage.argosy("wait", GROUP, "--timeout", "60s", good=False)
    group = json.loads(stage.argosy("status", GROUP, "-o", "json").stdout)
    nodes = [node for task in group["tasks"] for node in task["nodes"]]
    if group["phase"] != "SUCCEEDED":
        raise Failed(f"the group ended {group['phase']}: {group['text']}")
    if not seen.killed_at:
        raise Failed(f"the trainer never reached step {KILL_AT}, so it was not killed")
    if seen.attempt < 2:
        raise Failed(f"the trainer was killed at step {seen.killed_at} and was not restarted")
    if not seen.resumed_from:
        raise Failed("the restarted trainer began anew instead of from its checkpoint")
    rise = seen.rewards[-1] - seen.rewards[0]
    if rise < RISE:
        raise Failed(f"the reward rose by {rise:.2f} only, not by {RISE}")
    weak = [kind for kind, share in seen.solved.items() if share < SOLVED]
    if weak or not seen.solved:
        raise Failed(f"the final test: not learned: {', '.join(weak) or 'everything'}")
    restarted = [node["node"] for node in nodes if node["restarts"]]
    others = [node["node"] for node in nodes if not node["restarts"]]
    shares = ", ".join(f"{kind} {share:.0%}" for kind, share in seen.solved.items())
    print(
        f"\nThe reward rose from {seen.rewards[0]:.2f} to {seen.rewards[-1]:.2f};"
        f" unseen prompts solved: {shares}."
        f"\nKilled at step {seen.killed_at}, the trainer resumed from step {seen.resumed_from}:"
        f"\n  restarted  {', '.join(restarted)}"
        f"\n  untouched  {', '.join(others)}"
    )


def _last_words(stage: Stage) -> None:
    """What the trainer and the server said last: for a failed demonstration."""
    for words in (("logs", GROUP, "--tail", "5"), ("explain", GROUP), ("server", "logs")):
        try:
            said = stage.argosy(*words).stdout.strip()
        except Failed:
            continue
        print(
            f"--- argosy {' '.join(words)}\n" + "\n".join(said.splitlines()[-20:]), file=sys.stderr
        )


def _close(stage: Stage) -> None:
    try:
        stage.close()
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
