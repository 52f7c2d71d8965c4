"""The script that makes a host ready, run by a shell of this machine as `ssh` would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from argosy.infra.ssh.bootstrap import CODE, MARK, Agents, Place, opening
from tests.pythons import pythons

# A `python3` that says that it is 3.6, whatever it is.
OLD = f"""#!/bin/sh
while [ "$1" != -c ]; do shift; done
shift
exec {sys.executable} -I -S -c 'import sys
sys.version_info = (3, 6, 8)
code = sys.argv.pop(1)
exec(code)' "$@"
"""


@dataclass
class Host:
    """A user's home with programs of its own. `said`: what the script said, with the facts last."""

    folder: Path
    agents: Agents

    def program(self, name: str, text: str = "") -> None:
        """One that its shell finds: a script, or this Python."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        if text:
            path.write_text(text)
            path.chmod(0o755)
        else:
            path.symlink_to(sys.executable)

    def visited(self, *, quick: bool = True, part: int | None = None) -> list[str]:
        """The words that come before the facts, the agent given where it is asked for: `part` of
        its bytes.
        """
        place = Place("~/our agents", "of/me", "s1", 60.0, "10.0.0.7")
        script = opening(self.agents, place, quick=quick)
        environment = {"HOME": str(self.folder), "PATH": f"{self.folder}/bin:/usr/bin:/bin"}
        said: list[str] = []
        with subprocess.Popen(
            ["sh", "-c", script], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=False, cwd="/",
        ) as child:  # fmt: skip
            assert child.stdin is not None
            assert child.stdout is not None
            for line in child.stdout:
                word = line.decode().rstrip("\n")
                if word.startswith("{"):
                    hello = json.loads(word)
                    assert hello["home"] == f"{self.folder}/our agents/of/me"
                    assert hello["address"] == "10.0.0.7"
                    break
                said.append(word)
                if word.startswith("need"):
                    child.stdin.write(self.agents.asked(word.partition(" ")[2]).body[:part])
                    child.stdin.flush()
                    if part is not None:
                        child.stdin.close()
            child.stdin.close()
            assert child.wait(60) == 0
        return said


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path / "home", Agents.packed(tmp_path / "packed"))
    made.folder.mkdir()
    made.program("python3")
    return made


def have(host: Host, python: str, name: str) -> str:
    return f"have {host.folder}/bin/{python}\t{host.folder}/our agents/bin/{name}"


def test_the_agent_travels_once(host: Host) -> None:
    there = have(host, "python3", host.agents.code.name)
    assert host.visited() == [MARK, f"need {CODE}", there]
    assert host.visited() == [MARK, there]


def test_one_interpreter_is_started_by_each_visit(host: Host) -> None:
    counted = host.folder / "count"
    host.program("python3", f'#!/bin/sh\necho >>{counted}\nexec {sys.executable} "$@"\n')
    for visits in (1, 2):
        host.visited()
        assert counted.read_text().count("\n") == visits


def test_an_agent_that_came_damaged_is_told_and_not_kept(host: Host) -> None:
    code = host.agents.code
    host.agents = replace(host.agents, code=replace(code, body=code.body[::-1]))
    failed = "failed the agent cannot be put there: another one came"
    assert host.visited() == [MARK, f"need {CODE}", failed]
    assert list((host.folder / "our agents/bin").iterdir()) == []


def test_an_agent_that_comes_in_parts_is_told_and_not_kept(host: Host) -> None:
    failed = "failed the agent cannot be put there: it came in parts only"
    assert host.visited(part=1000) == [MARK, f"need {CODE}", failed]
    assert list((host.folder / "our agents/bin").iterdir()) == []
    assert host.visited()[1:] == [f"need {CODE}", have(host, "python3", host.agents.code.name)]


def test_what_cannot_be_put_there_leaves_nothing(host: Host) -> None:
    there = host.folder / "our agents/bin" / host.agents.code.name
    there.mkdir(parents=True)
    *_, failed = host.visited()
    assert failed.startswith("failed the agent cannot be put there: ")
    assert list(there.parent.iterdir()) == [there]


@pytest.mark.parametrize("python", pythons())
def test_every_python_receives_it(host: Host, python: str) -> None:
    """As code those that run ours, as sources the others; and then has it."""
    host.program("python3", f'#!/bin/sh\nexec {python} "$@"\n')
    _, asked, there = host.visited()
    assert asked == (f"need {CODE}" if there.endswith(host.agents.code.name) else "need ")
    assert there in (
        have(host, "python3", one.name) for one in (host.agents.code, host.agents.sources)
    )
    assert host.visited() == [MARK, there]


def test_an_old_python_is_passed_over_at_the_first_visit_too(host: Host) -> None:
    host.program("python3.11")
    host.program("python3", OLD)
    there = have(host, "python3.11", host.agents.code.name)
    assert host.visited() == [MARK, f"need {CODE}", there]


def test_an_old_python_is_passed_over_where_the_agent_is_there(host: Host) -> None:
    host.program("python3.11")
    host.visited()
    host.program("python3", OLD)
    assert host.visited() == [MARK, have(host, "python3.11", host.agents.code.name)]


def test_a_python_that_does_not_start_is_passed_over_by_the_next_try(host: Host) -> None:
    """As a shim whose Python was taken away: nobody can tell before it is tried."""
    host.program("python3.11")
    host.visited()
    host.program("python3", "#!/bin/sh\nexit 127\n")
    with pytest.raises(AssertionError):
        host.visited()
    there = have(host, "python3.11", host.agents.code.name)
    assert host.visited(quick=False) == [MARK, there]


def test_code_of_another_python_is_not_run(host: Host) -> None:
    """The agent's sources come for it, and are used from then on."""
    host.visited()
    host.agents = Agents(host.agents.sources, host.agents.code, "00000000")
    there = have(host, "python3", host.agents.sources.name)
    assert host.visited() == [MARK, "need ", there]
    assert host.visited() == [MARK, there]


def test_a_folder_that_cannot_be_made_is_told(host: Host) -> None:
    (host.folder / "our agents").write_text("a file")
    said = host.visited()
    assert said == [MARK, f"failed {host.folder}/our agents cannot be made, or written"]
    os.unlink(host.folder / "our agents")
