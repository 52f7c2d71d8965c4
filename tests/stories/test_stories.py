"""Every script beside this file gives the timeline that stands below its `---`, word for word.

`python tests/stories/test_stories.py --update` writes the timelines anew: read the difference.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from argosy.testing.script import play

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
LINE = "---\n"


def told(path: Path) -> str:
    """The whole file as it should be."""
    script = path.read_text(encoding="utf-8").partition(LINE)[0]
    return f"{script}{LINE}{play(script)}"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    assert told(path) == path.read_text(encoding="utf-8")


def test_the_seven_recurrent_bugs_have_a_story() -> None:
    names = {path.stem for path in STORIES}
    assert names >= {
        "a-partial-gang-holds-resources",
        "a-false-recovery-after-failed-monitoring",
        "running-for-ever-after-the-owner-died",
        "a-restart-budget-silently-reset",
        "one-event-handled-twice",
        "a-dependant-waits-for-ever-on-a-dead-dependency",
        "logs-that-vanish-with-what-failed",
    }


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit("usage: python tests/stories/test_stories.py --update")
    for story in STORIES:
        story.write_text(told(story), encoding="utf-8")
