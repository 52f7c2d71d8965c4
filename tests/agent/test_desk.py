"""The desk of a host (`agent lease`): what it says, and when it tries the network out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agent.rig import SOURCE

MODES = ("isolated", "host", "none")


class Desk:
    """One that was started, and has said its first line."""

    def __init__(self, home: Path) -> None:
        words = ["lease", "--home", str(home), "--book", str(home.parent / "book")]
        code = (
            f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r}); from agent.main import main"
        )
        self.child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", f"{code}; sys.exit(main())", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.hello = self.line()

    def line(self) -> dict[str, Any]:
        """The next that it says."""
        assert self.child.stdout is not None
        found: dict[str, Any] = json.loads(self.child.stdout.readline())
        return found

    def network(self) -> str:
        """What a look says of it."""
        assert self.child.stdin is not None
        self.child.stdin.write(b'{"id": 1, "op": "look"}\n')
        self.child.stdin.flush()
        return str(self.line()["network"])


@contextmanager
def a_desk(home: Path) -> Iterator[Desk]:
    desk = Desk(home)
    try:
        yield desk
    finally:
        desk.child.communicate()
        assert desk.child.returncode == 0


def test_the_network_is_tried_out_after_what_a_server_asks_first(tmp_path: Path) -> None:
    """That it was is told; whoever comes later knows at once, and nothing is tried again."""
    home = tmp_path / "home"
    with a_desk(home) as desk:
        assert desk.network() == ""
        assert desk.line() == {"changed": True}
        mode = desk.network()
        assert mode in MODES
    kept = (home / "trial.json").stat()
    with a_desk(home) as desk:
        assert desk.network() == mode
    assert (home / "trial.json").stat() == kept
    assert [one.name for one in home.iterdir() if one.name.startswith("trial-")] == []


def test_a_desk_that_ends_before_that_leaves_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with a_desk(home) as desk:
        assert desk.network() == ""
    assert not (home / "trial.json").exists()
