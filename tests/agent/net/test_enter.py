"""A command beside a program, where no namespace is needed: what it says and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys

BESIDE = "enter.exec_into({'mode': 'host'}, os.getpid(), %r, {'PATH': '/bin'}, '/')"
# Its end is seen first; the same signal then reaches the one that waited.
LATE = """
waited = os.waitpid
def ended(child, flags):
    seen = waited(child, flags)
    os.kill(os.getpid(), signal.SIGTERM)
    return seen
os.waitpid = ended
child = os.fork()
if not child:
    os._exit(7)
enter._mirror(child)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    code = f"import os, signal\nfrom argosy.agent.net import enter\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=os.environ
    )


def test_a_command_that_is_not_there_is_named() -> None:
    done = run(BESIDE % ["nocmd"])
    assert (done.returncode, done.stderr) == (127, "argosy: nocmd: no such command\n")


def test_a_signal_after_the_end_of_the_command_is_none() -> None:
    done = run(LATE)
    assert (done.returncode, done.stderr) == (7, "")
