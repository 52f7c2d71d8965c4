"""Breaks the rig's hosts for the suite: no infra of real hosts can do that itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tests.infra.ssh.rig import Rig

# The agents of the host, whoever they work for; nothing else of theirs is touched.
KILL_AGENTS = r"""
for file in $(find /root/.argosy-agent /home/worker/.argosy-agent -name agent.json 2>/dev/null); do
  pid=$(sed 's/.*"pid": \([0-9]*\).*/\1/' "$file")
  grep -qs argosy-agent "/proc/$pid/cmdline" && kill -KILL "$pid"
done
true
"""


@dataclass(frozen=True)
class RigBreaks:
    """What can be done to a host of the rig."""

    rig: Rig

    async def break_host(self, host: str, what: str) -> None:
        """As `argosy.infra.api.Breaks` has it."""
        await asyncio.to_thread(self._break, host, what)

    def _break(self, host: str, what: str) -> None:
        match what:
            case "kill-agent":
                self.rig.on_host(host, KILL_AGENTS)
            case "freeze" | "thaw":
                self.rig.verb(what, host)
            case "lose":
                self.rig.verb("kill", host)
            case "restore" if self.rig.runs(host):
                self.rig.verb("heal", host)
                self.rig.verb("thaw", host)
            case "restore":
                self.rig.verb("start", host)
            case _:
                raise AssertionError(f"the rig does not know how to {what}")
