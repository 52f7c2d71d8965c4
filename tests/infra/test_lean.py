"""What travels of the agent is what it was, but for comments and docstrings."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import argosy
from argosy.infra.lean import bare
from argosy.infra.pack import packed_agent

SOURCES = Path(argosy.__file__).parent
APPLIED_MAX = 256 << 10  # bytes of an annotation
SOURCE = '''"""Of the module."""

import os  # here

TEXT = """not a
docstring"""  # at all
"""Of a constant,
on two lines."""


class A:
    """Of the class: "quoted", ünïcode."""

    def f(self, x):
        """Of the function.

        On more lines.
        """
        # alone
        return (
            "kept"  # in brackets
            "too",
            "#" + x,
        )
'''


def meaning(source: str) -> str:
    """All that is executed, with its lines."""
    tree = ast.parse(source)
    for one in ast.walk(tree):
        if hasattr(one, "body") and isinstance(one.body, list):
            one.body = [x for x in one.body if not _is_text(x)]
    return "\n".join(f"{getattr(x, 'lineno', 0)} {ast.dump(x)}" for x in ast.walk(tree))


def _is_text(one: ast.stmt) -> bool:
    constant = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    return constant and isinstance(one.value.value, str)


def test_comments_and_docstrings_go_and_nothing_else_does():
    found = bare(SOURCE.encode()).decode()
    assert meaning(found) == meaning(SOURCE)
    assert len(found.splitlines()) == len(SOURCE.splitlines())
    gone = ("Of the", "Of a constant", "On more", "# alone")
    assert not [word for word in gone if word in found]
    assert '"#" + x' in found


def test_the_agent_means_the_same_runs_and_can_be_applied(tmp_path: Path):
    less = packed_agent(tmp_path)
    with zipfile.ZipFile(less) as packed:
        for name in packed.namelist():
            if name != "__main__.py":  # the packing makes that one
                said = (SOURCES / name).read_text()
                assert meaning(packed.read(name).decode()) == meaning(said), name
    size = less.stat().st_size * 4 / 3
    assert size < APPLIED_MAX * 0.8, "the agent is nearly too large for its manifest"
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(less), "--help"], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert "attach" in done.stdout + done.stderr
