"""The server's part of op `store`, over a test's own stream."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from argosy.model.ids import GroupId
from argosy.storage import snapshot
from argosy.storage.outgoing import Snapshot
from tests.agent.rig import Agent, Wire

GROUP = GroupId("g1-1")


@dataclass
class Hidden:
    """A snapshot whose path is not there: it was taken, and then moved away."""

    path: str
    here: Path
    asked: list[Any] = field(default_factory=list)  # what the agent lacked, each time

    @property
    def tree(self) -> str:
        return os.path.basename(self.path)

    def bring(
        self, agent: Agent, *, frames: int | None = None, after_each: Callable[[], Any] = int
    ) -> tuple[dict[str, Any], int]:
        """Send the tree: (the last answer, bytes of contents sent). `frames`: cut it after so many;
        the answer is {} then.
        """
        sent = 0
        snap = Snapshot(self.here)
        wire = Wire(agent.home, {"op": "store", "tree": self.tree})
        try:
            answer = wire.line()
            assert answer is not None
            if answer.get("lacks") == "manifest":
                times = snap.times()
                wire.send({"manifest": len(snap.packed), "times": len(times)})
                wire.sock.sendall(snap.packed + times)
                answer = wire.line()
                assert answer is not None
            if "lacks" not in answer:
                return answer, sent
            self.asked.append(answer)
            out = snap.outgoing(answer["lacks"], answer["begun"])
            while frame := out.frame():
                if frames is not None and frames <= 0:
                    out.close()
                    return {}, sent
                frames = None if frames is None else frames - 1
                wire.sock.sendall(frame)
                sent += struct.unpack("!BI", frame[:5])[1]
                after_each()
            return wire.line() or {}, sent
        finally:
            wire.close()


def hide(folder: Path, source: Path, *, name: str = "server") -> Hidden:
    """A snapshot of the source that only `bring` can reach."""
    home = folder / name
    taken = Path(snapshot.take(home, GROUP, [str(source)])[str(source)])
    away = folder / f"{name}-away"
    if away.exists():
        shutil.rmtree(away)
    os.rename(home, away)
    return Hidden(str(taken), away / taken.relative_to(home))
