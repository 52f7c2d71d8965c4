"""What came of CI's parts, read from their junit files.

    python scripts/junit.py --part FILE    one line for the part; silent when it counts no tests
    python scripts/junit.py --all FOLDER   a line for each failure, and `N passed, N failed` at last

A test that was skipped in one part must have passed in another: what CI can run, it runs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Case:
    """One test in one part."""

    name: str
    verdict: str
    text: str


def cases(file: Path) -> list[Case]:
    """All tests of a junit file; [] when there is none."""
    if not file.exists():
        return []
    found = []
    for node in ElementTree.parse(file).iter("testcase"):
        name = f"{node.get('classname')}::{node.get('name')}"
        verdict, text = PASSED, ""
        for child in node:
            if child.tag in ("failure", "error"):
                verdict, text = FAILED, child.get("message") or ""
            elif child.tag == "skipped" and verdict == PASSED:
                verdict, text = SKIPPED, child.get("message") or ""
        found.append(Case(name, verdict, " ".join(text.split())[:200]))
    return found


def part(file: Path) -> None:
    """Print the count of one part."""
    counts = Counter(case.verdict for case in cases(file))
    if counts:
        print(f"--- {file.stem}:", ", ".join(f"{counts[one]} {one}" for one in sorted(counts)))


def everything(folder: Path) -> int:
    """Print all failures and the sums; 1 when anything failed or nothing ran."""
    passed, wrong = 0, []
    by_part = {file.stem: cases(file) for file in sorted(folder.glob("*.xml"))}
    run = {case.name for some in by_part.values() for case in some if case.verdict == PASSED}
    for name, some in by_part.items():
        passed += sum(case.verdict == PASSED for case in some)
        wrong += [f"{name}: {case.name}: {case.text}" for case in some if case.verdict == FAILED]
        wrong += [
            f"{name}: {case.name}: skipped everywhere: {case.text}"
            for case in some
            if case.verdict == SKIPPED and case.name not in run
        ]
    for line in (folder / "parts").read_text().splitlines():
        name, code = line.split()
        if code == "0":
            passed += name not in by_part  # a part that is no pytest run counts as one
        elif not any(case.verdict == FAILED for case in by_part.get(name, ())):
            wrong.append(f"{name}: exited {code}")
    print("\n".join(wrong))
    print(f"{passed} passed, {len(wrong)} failed")
    return 1 if wrong or not passed else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=Path)
    parser.add_argument("--all", type=Path)
    asked = parser.parse_args()
    if asked.part:
        part(asked.part)
    return everything(asked.all) if asked.all else 0


if __name__ == "__main__":
    sys.exit(main())
