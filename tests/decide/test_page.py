"""The timeline in docs/decide.md is what its script gives.

`python -m tests.decide.test_page` writes it anew: read the difference, and the sentences below it.
"""

from __future__ import annotations

import re
from pathlib import Path

from argosy.decide import decide
from argosy.testing.script import play

PAGE = Path(__file__).parents[2] / "docs" / "decide.md"
FENCE = re.compile(r"```text\n(.*?)```\n", re.DOTALL)


def told(page: str) -> str:
    """The page with its timeline as it is now."""
    script, timeline = FENCE.findall(page)
    return page.replace(timeline, f"{play(script).rstrip()}\n")


def test_the_timeline_is_what_the_script_gives() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert told(page) == page


def test_the_page_names_every_module_of_decide() -> None:
    page = PAGE.read_text(encoding="utf-8")
    modules = {one.stem for one in Path(decide.__file__).parent.glob("*.py")} - {"__init__"}
    assert [one for one in sorted(modules) if f"decide/{one}.py" not in page] == []


if __name__ == "__main__":
    PAGE.write_text(told(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
