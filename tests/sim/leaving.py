# ruff: noqa: E501  (the texts are lines of the source)
"""Deliberate mistakes in what `decide` does about hosts that go away."""

from __future__ import annotations

from tests.sim.mutation import Mutation

LEAVING: tuple[Mutation, ...] = (
    Mutation(
        "that a host goes away is not heard",
        "absorb",
        "seen.leaving and not lease.leaving and seen.state is SeenState.UP:",
        "False:",
    ),
    Mutation(
        "that a host goes away is heard again and again",
        "absorb",
        "seen.leaving and not lease.leaving and seen.state is SeenState.UP:",
        "seen.leaving and seen.state is SeenState.UP:",
    ),
    Mutation(
        "only the rank itself leaves its host",
        "failure",
        "            if attempt.live and not node.replace:\n",
        "            if False:\n",
    ),
    Mutation(
        "who loses its host meanwhile restarts all once more",
        "failure",
        "            if attempt.live and not node.replace:\n",
        "            if attempt.live:\n",
    ),
    Mutation(
        "what nobody wants replaced leaves its host",
        "failure",
        "            if not task.restart.on_lost:\n                continue\n",
        "",
    ),
    Mutation(
        "who has ended leaves its host too",
        "failure",
        "        if node.settled is not None or draft.verdict(task) is not None or task not in draft.gang:\n",
        "        if task not in draft.gang:\n",
    ),
    Mutation(
        "a successor waits until the host is gone",
        "fill",
        "        return old is not None and old.leaving and old.id != lease.id\n",
        "        return False\n",
    ),
    Mutation(
        "a successor is made on the host that goes away",
        "fill",
        "        return old is not None and old.leaving and old.id != lease.id\n",
        "        return old is not None and old.leaving\n",
    ),
    Mutation(
        "a successor starts beside what leaves",
        "start",
        "    opened = [b for b in opened if not _has_predecessor(draft, waiting[b])]\n",
        "",
    ),
    Mutation(
        "what has a successor lives on when its host is gone",
        "draft",
        "        return [one for one in self.attempts.values() if one.lease == lease and one.live]\n",
        "        return []\n",
    ),
)
