"""A branch is one commit for all nodes of a group, when the server can ask for it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from argosy.errors import InputError
from argosy.model.spec import GroupSpec, TaskSpec, Workdir
from argosy.storage.repository import Pinned, pinned

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: `main` and the annotated tag `v1` are the first, `next` is the second."""
    place = tmp_path / "code"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    for number, names in enumerate((("tag", "-a", "-m", "one", "v1"), ("branch", "next"))):
        (place / "file").write_text(str(number))
        git(place, "add", "file")
        git(place, "commit", "-q", "-m", str(number))
        git(place, *names)
    git(place, "reset", "-q", "--hard", "HEAD^")
    return place


def git(place: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    return subprocess.run(
        ["git", "-C", str(place), *who, *words], check=True, capture_output=True, text=True, env=env
    ).stdout.strip()


async def of(url: Path | str, ref: str = "", **more: tuple[tuple[str, str], ...]) -> Pinned:
    tasks = (TaskSpec("a", workdir=Workdir(url=str(url), ref=ref), **more), TaskSpec("b"))
    return await pinned(GroupSpec("demo", tasks))


def ref_of(found: Pinned) -> str:
    workdir = found.spec.tasks[0].workdir
    assert workdir is not None
    return workdir.ref


@pytest.mark.parametrize(
    ("ref", "commit"), [("", "main"), ("main", "main"), ("next", "next"), ("v1", "v1^{commit}")]
)
async def test_a_branch_or_tag_is_its_commit(repository: Path, ref: str, commit: str) -> None:
    found = await of(repository, ref)
    assert ref_of(found) == git(repository, "rev-parse", commit)
    assert found.warnings == ()
    assert found.notes == (
        f"{repository} at {ref or 'HEAD'} is commit {ref_of(found)[:12]}, for all nodes",
    )


async def test_a_tag_comes_before_a_branch_of_that_name(repository: Path) -> None:
    git(repository, "branch", "v1", "next")
    assert ref_of(await of(repository, "v1")) == git(repository, "rev-parse", "main")


async def test_a_commit_is_not_asked_for() -> None:
    spec = GroupSpec("demo", (TaskSpec("a", workdir=Workdir(url="/none", ref="0123abc")),))
    assert await pinned(spec) == Pinned(spec)


async def test_what_is_not_there_is_refused(repository: Path) -> None:
    with pytest.raises(InputError, match="has no branch or tag 'mian'"):
        await of(repository, "mian")
    with pytest.raises(InputError, match="no repository"):
        await of("--upload-pack=touch /tmp/x", "main")


async def test_where_the_server_cannot_ask_each_node_does() -> None:
    found = await of("/no/such/repository", "main")
    assert ref_of(found) == "main"
    (warning,) = found.warnings
    assert warning.startswith("/no/such/repository at main is looked up by each node for itself")


async def test_no_secret_is_in_what_is_said() -> None:
    token = (("GIT_TOKEN", "s3cret-token"),)
    found = await of("https://me:s3cret-word@127.0.0.1:9/x.git", "main", secrets=token)
    (warning,) = found.warnings
    assert "https://127.0.0.1:9/x.git at main" in warning
    assert "s3cret" not in warning


async def test_equal_code_is_said_once(repository: Path) -> None:
    work = Workdir(url=str(repository), ref="main")
    found = await pinned(
        GroupSpec("demo", (TaskSpec("a", workdir=work), TaskSpec("b", workdir=work)))
    )
    assert len(found.notes) == 1
    assert {task.workdir.ref for task in found.spec.tasks if task.workdir} == {ref_of(found)}
