"""A working directory out of a git repository."""

from __future__ import annotations

import base64
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.agent.attempt import files
from argosy.agent.store.clone import Repository
from tests.agent.rig import Agent

TOKEN = "t0ken/with:signs"


def git(folder: Path, *words: str) -> str:
    config = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", "-C", str(folder), *config, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """Three commits: the first has the tag `v1`, the second the branch `other`, the last `main`."""
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "-q")
    for number, place in enumerate((("tag", "v1"), ("branch", "other"), ())):
        (folder / "main.py").write_text(f"print({number})\n")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"number {number}")
        if place:
            git(folder, *place)
    return folder


@pytest.mark.parametrize(("ref", "number"), [("", 2), ("main", 2), ("other", 1), ("v1", 0)])
def test_a_ref_is_checked_out(origin: Path, tmp_path: Path, ref: str, number: int) -> None:
    work = tmp_path / "work"
    files.put(str(work), "", [], "/", None, Repository(origin.as_uri(), ref))
    assert (work / "main.py").read_text() == f"print({number})\n"
    assert git(work, "rev-list", "--count", "HEAD") == "1"


def test_a_commit_is_checked_out(origin: Path, tmp_path: Path) -> None:
    for number, ref in enumerate(
        (git(origin, "rev-parse", "v1"), git(origin, "rev-parse", "v1")[:9])
    ):
        work = tmp_path / f"work{number}"
        files.put(str(work), "", [], "/", None, Repository(origin.as_uri(), ref))
        assert (work / "main.py").read_text() == "print(0)\n"


@pytest.mark.parametrize(
    ("url", "ref", "said"),
    [
        ("file:///no/such/place", "", "/no/such/place at HEAD: "),
        ("", "no-such-branch", "no-such-branch: there is no such branch, tag or commit"),
        ("--upload-pack=touch /tmp/x", "", "is no repository"),
        ("", "--upload-pack=touch /tmp/x", "is no repository"),
    ],
)
def test_what_is_not_there_is_named(
    origin: Path, tmp_path: Path, url: str, ref: str, said: str
) -> None:
    repository = Repository(url or origin.as_uri(), ref)
    with pytest.raises(files.FilesError, match=said.replace(".", r"\.")):
        files.put(str(tmp_path / "work"), "", [], "/", None, repository)
    assert not (tmp_path / "work").exists()


class _Asking(http.server.SimpleHTTPRequestHandler):
    """Files, for who has the password."""

    users: set[str]

    def do_GET(self) -> None:
        kind, _, words = self.headers.get("Authorization", "").partition(" ")
        if kind != "Basic":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="r"')
            self.end_headers()
            return
        self.users.add(base64.b64decode(words).decode())
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site(origin: Path, tmp_path: Path) -> Iterator[tuple[str, set[str]]]:
    """A site with the repository, that wants a password; who has asked."""
    bare = tmp_path / "site" / "code.git"
    git(origin, "clone", "-q", "--bare", str(origin), str(bare))
    git(bare, "update-server-info")
    users: set[str] = set()

    class Asking(_Asking):
        def __init__(self, *words: object) -> None:
            self.users = users
            super().__init__(*words, directory=str(tmp_path / "site"))  # type: ignore[arg-type]

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Asking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}/code.git", users
        server.shutdown()
        thread.join()


def test_a_password_goes_to_the_server_and_nowhere_else(
    site: tuple[str, set[str]], tmp_path: Path
) -> None:
    place, users = site
    quoted = TOKEN.replace("/", "%2F").replace(":", "%3A")
    work = tmp_path / "work"
    repository = Repository(f"http://me:{quoted}@{place}", "other")
    files.put(str(work), "", [], "/", None, repository)
    assert (work / "main.py").read_text() == "print(1)\n"
    assert users == {f"me:{TOKEN}"}
    assert repository.name == f"http://{place} at other"
    for path in (work / ".git").rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes()


def test_without_a_password_nobody_is_asked_for_one(
    site: tuple[str, set[str]], tmp_path: Path
) -> None:
    with pytest.raises(files.FilesError, match=r"at HEAD: "):
        files.put(str(tmp_path / "work"), "", [], "/", None, Repository(f"http://{site[0]}"))


@pytest.mark.parametrize(
    ("url", "token", "found"),
    [
        ("https://h/x", "T", ("https://h/x", "", "T")),
        ("https://abc@h:8443/x", "", ("https://h:8443/x", "", "abc")),
        ("http://h/x", "T", ("http://h/x", "", "")),  # a token goes over no open wire
        ("git@h:me/x.git", "T", ("git@h:me/x.git", "", "")),
    ],
)
def test_where_a_password_comes_from(url: str, token: str, found: tuple[str, str, str]) -> None:
    assert Repository(url, token=token)._split() == found


def test_a_program_runs_in_the_clone(agent: Agent, origin: Path) -> None:
    agent.assign(("one", 30), git={"url": origin.as_uri(), "ref": "v1"}, run="cat main.py")
    assert agent.end("one")[0] == "succeeded"
    assert agent.log("one") == b"print(0)\n"
    agent.assign(("two", 30), git={"url": "file:///none", "ref": ""}, run="true", lease="L2")
    assert agent.end("two") == ("failed", None, None, "files-failed")
    assert "file:///none at HEAD: " in agent.attempts[agent.id("two")]["text"]
