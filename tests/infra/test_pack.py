"""The packed agent: small, the same for the same sources, and it runs."""

from __future__ import annotations

import ast
import json
import marshal
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import argosy
from argosy.infra.kubernetes.manifests.scripts import AGENT_KEY, RELAY_KEY
from argosy.infra.lean import bare, mark, pyc
from argosy.infra.pack import (
    SIZE_MAX,
    TRAVEL_MAX,
    compiled_agent,
    packed_agent,
    pod_files,
    travelling_agent,
)

AGENT = Path(argosy.__file__).parent / "agent"
SOURCE = b'''"""What it is for."""

from __future__ import annotations

# Why.
KEPT = """
# of a script, with as many
"""
"""What it says."""


def f(x):
    "In one line."
    # Why.
    assert x, "no x"
    raise ValueError(
        KEPT
    )
'''


def test_the_packed_agent_is_small_and_named_by_what_is_in_it(tmp_path):
    first = packed_agent(tmp_path / "a")
    again = packed_agent(tmp_path / "b")
    assert first.name == again.name
    assert first.read_bytes() == again.read_bytes()
    assert first.stat().st_size <= SIZE_MAX
    assert packed_agent(tmp_path / "a") == first
    assert [path.name for path in (tmp_path / "a").iterdir()] == [first.name]


def test_it_holds_sources_only_and_the_compiled_one_code_only(tmp_path):
    def endings(path):
        with zipfile.ZipFile(path) as archive:
            return {name.rpartition(".")[2] for name in archive.namelist()}

    assert endings(packed_agent(tmp_path)) == {"py"}
    assert endings(compiled_agent(tmp_path)) == {"pyc"}
    assert endings(travelling_agent(tmp_path)) == {"pyc"}
    assert travelling_agent(tmp_path).stat().st_size <= TRAVEL_MAX


def test_a_bare_source_says_the_same_on_the_same_lines():
    small = bare(SOURCE).decode()
    assert "Why" not in small
    assert "In one line" not in small
    assert small.count("\n") == SOURCE.count(b"\n")
    for code in (
        compile(SOURCE, "s", "exec"),
        marshal.loads(pyc("s", small.encode(), lean=True)[16:]),
    ):
        found: dict = {}
        exec(code, found)
        assert found["KEPT"] == "\n# of a script, with as many\n"
        with pytest.raises(AssertionError, match="no x"):
            found["f"](0)
        with pytest.raises(ValueError) as raised:
            found["f"](1)
        assert raised.tb.tb_next.tb_lineno == 16


def test_many_may_ask_at_once_and_the_files_of_a_pod_are_named_as_its_scripts_have_it(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(pod_files, [tmp_path] * 8))
    assert all(one == found[0] for one in found)
    assert set(found[0]) == {AGENT_KEY, RELAY_KEY, f"agent.{mark()}.pyz"}


def test_all_run_without_anything_else(tmp_path):
    for path in (packed_agent(tmp_path), compiled_agent(tmp_path), travelling_agent(tmp_path)):
        command = [sys.executable, "-I", "-S", str(path), "version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()


TYPED = b"""from __future__ import annotations

from typing import Any, Dict, List, Optional

Table = Dict[str, int]
here: List[int] = [1]


class Row:
    name: str
    size: Optional[int] = None

    def grown(self, *by: int, most: Any = 9) -> Table:
        total: int = sum(by)
        later: int
        return {self.name: min(total, most)}
"""


def test_code_that_travels_says_nothing_of_types_but_of_fields():
    code = marshal.loads(pyc("typed", TYPED, lean=True)[16:])
    found: dict = {}
    exec(code, found)
    assert not {"Any", "List", "Optional"} & found.keys()
    assert found["Table"] == found["Dict"][str, int]
    assert found["here"] == [1]
    row = found["Row"]
    assert row.__annotations__ == {"name": "str", "size": "Optional[int]"}
    assert row.grown.__annotations__ == {}
    row.name = "a"
    assert row().grown(3, 4) == {"a": 7}
    assert row().grown(8, 4) == {"a": 9}


def test_annotations_of_the_agent_are_never_evaluated():
    """What is left out when it travels is a comment for people, then."""
    for path in AGENT.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        modules = [one.module for one in tree.body if isinstance(one, ast.ImportFrom)]
        assert "typing" not in modules or modules[0] == "__future__", path


def test_who_only_looks_at_a_host_loads_little(tmp_path):
    words = ["lease", "--home", str(tmp_path / "home"), "--book", str(tmp_path / "book")]
    program = str(travelling_agent(tmp_path))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", program, *words],
        input="", capture_output=True, text=True, timeout=60, cwd="/",
        env={"HOME": str(tmp_path), "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"},
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[0])["facts"]["cpus"]
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "agent.leases.desk" in loaded
    assert not {"typing", "socket", "ctypes", "shutil", "subprocess"} & loaded
