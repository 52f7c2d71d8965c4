"""Fixtures: interpreters, agents, and a look at /proc after each test: nothing may be left."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.rig import SOURCE, Agent, eventually, marked
from tests.pythons import oldest_python


@pytest.fixture(params=["oldest", "current"])
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter for agents and launchers: 3.8, and the one that runs the tests."""
    return oldest_python() if request.param == "oldest" else sys.executable


@pytest.fixture
def word() -> Iterator[str]:
    """A word for everything that a test makes; at the end no process may bear it."""
    value = "t" + uuid.uuid4().hex[:10]
    yield value
    left: dict[int, str] = {}
    try:
        eventually(lambda: not marked(value), "processes end", 10)
    except AssertionError:
        left = marked(value)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert not left, f"left behind: {left}"


@pytest.fixture
def folder(word: str) -> Iterator[Path]:
    """A folder for a test, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix=word))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent as one file."""
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in SOURCE.rglob("*.py"):
            archive.write(file, "agent/" + str(file.relative_to(SOURCE)))
        archive.writestr(
            "__main__.py", "import sys\nfrom agent.main import main\nsys.exit(main())\n"
        )
    return path


@pytest.fixture
def new_agent(pyz: Path, folder: Path, word: str, python: str) -> Iterator[Callable[[], Agent]]:
    """Makes agents, each with a home of its own."""
    made: list[Agent] = []

    def make(home: Path | None = None) -> Agent:
        place = home or folder / f"home{len(made)}"
        place.mkdir(exist_ok=True)
        agent = Agent(python, pyz, place, word)
        made.append(agent)
        return agent

    yield make
    for agent in made:
        agent.close()


@pytest.fixture
def agent(new_agent: Callable[[], Agent]) -> Agent:
    """A running agent."""
    made = new_agent()
    made.start()
    return made
