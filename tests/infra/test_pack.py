"""The packed agent: small, the same for the same sources, and it runs."""

from __future__ import annotations

import subprocess
import sys
import zipfile

from argosy.infra.pack import SIZE_MAX, compiled_agent, packed_agent


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


def test_both_run_without_anything_else(tmp_path):
    for path in (packed_agent(tmp_path), compiled_agent(tmp_path)):
        command = [sys.executable, "-I", "-S", str(path), "version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
