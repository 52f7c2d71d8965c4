"""The runtime package on its own, copied out, on the oldest Python at hand (3.8 if there)."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from argosy import runtime
from tests.pythons import oldest_python

FOLDER = Path(runtime.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))

PROGRAM = """
import sys
import peers, checkpoint, metrics
assert peers.address("trainer") == "127.0.0.1"
saved = checkpoint.Writer().save(7, b"state")
assert checkpoint.newest(saved.path.parent) == saved
with metrics.Metrics() as out:
    out.add(7, reward=0.5)
assert [line["step"] for line in metrics.latest(out.path)] == [7]
print("python %d.%d is fine" % sys.version_info[:2])
"""


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_syntax_is_that_of_python_3_8(module: Path) -> None:
    ast.parse(module.read_text(encoding="utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_modules_stand_alone(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import: the module could not be copied out"
            imported.add((node.module or "").split(".")[0])
    assert imported <= sys.stdlib_module_names


def test_copied_out_it_works_on_the_oldest_python(tmp_path: Path) -> None:
    for module in MODULES:
        shutil.copy(module, tmp_path / ("runtime_init.py" if module.stem == "__init__" else ""))
    node = {"task": "trainer", "index": 0, "name": "trainer-0.g", "address": "127.0.0.1"}
    book = {"version": 1, "group": "g", "incarnation": 0, "self": node, "nodes": [node]}
    (tmp_path / "peers.json").write_text(json.dumps(book))
    env = {
        "PATH": os.environ["PATH"],
        "ARGOSY_PEERS": str(tmp_path / "peers.json"),
        "ARGOSY_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "ARGOSY_SHARED_DIR": str(tmp_path / "shared"),
    }
    command = [oldest_python(), "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "is fine" in done.stdout
