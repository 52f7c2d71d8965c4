"""Code that is not on the host is asked for, arrives whole, and is kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from argosy.agent.store.trees import Store
from argosy.storage import manifest
from tests.agent.rig import Agent, eventually
from tests.agent.store.bringing import Hidden, hide
from tests.agent.store.odd import odd_folder, seen

PWD = "pwd -P; sleep 1000"


@pytest.fixture
def code(folder: Path) -> Hidden:
    """A hidden snapshot of an odd folder."""
    return hide(folder, odd_folder(folder / "code"))


def need(agent: Agent, tree: str = "") -> dict[str, Any]:
    """The next need that the agent says, of a tree if one is named."""
    while True:
        message = agent.next()
        if message["type"] == "need" and tree in ("", message["tree"]):
            return message


def store_of(agent: Agent) -> Store:
    return Store(str(agent.home / "store"))


def work(agent: Agent, name: str) -> Path:
    """The working directory of an attempt that runs."""
    agent.stage(name, 30)
    return Path(os.fsdecode(eventually(lambda: agent.log(name)).splitlines()[0]))


def test_a_tree_arrives_as_it_was(agent: Agent, code: Hidden) -> None:
    agent.assign(("one", 30), workdir=code.path, run=PWD)
    wanted = need(agent)
    assert (wanted["lease"], wanted["tree"], wanted["path"]) == ("L1", code.tree, code.path)
    answer, _ = code.bring(agent)
    assert answer["ok"] is True
    assert seen(work(agent, "one")) == seen(code.here)
    assert not os.path.exists(store_of(agent).part(code.tree))
    assert os.stat(agent.home / "store").st_mode & 0o777 == 0o700


def test_what_is_here_is_not_asked_for_again(agent: Agent, code: Hidden) -> None:
    agent.assign(("one", 30), workdir=code.path, run=PWD)
    need(agent)
    code.bring(agent)
    agent.stage("one", 30)
    agent.messages.clear()
    agent.assign(("two", 30), workdir=code.path, run=PWD, lease="L2")
    assert seen(work(agent, "two")) == seen(code.here)
    assert not [one for one in agent.messages if one["type"] == "need"]
    assert code.bring(agent) == ({"got": 0, "reused": 0, "ok": True}, 0)


def test_only_what_changed_is_sent(agent: Agent, code: Hidden, folder: Path) -> None:
    agent.assign(("one", 30), workdir=code.path, run=PWD)
    need(agent)
    first = code.bring(agent)[0]
    (folder / "code" / "main.py").write_text("print(2)\n")
    (folder / "code" / "copy.bin").write_bytes((folder / "code" / "large.bin").read_bytes())
    changed = hide(folder, folder / "code", name="later")
    agent.assign(("two", 30), workdir=changed.path, run=PWD, lease="L2")
    need(agent, changed.tree)
    answer, _ = changed.bring(agent)
    assert answer == {"got": 9, "reused": first["got"] - 9, "ok": True}
    assert seen(work(agent, "two")) == seen(changed.here)


def test_a_stream_that_breaks_is_gone_on_with(agent: Agent, folder: Path) -> None:
    code = folder / "code"
    code.mkdir()
    (code / "a-small").write_bytes(b"small")
    large = os.urandom(5 << 20)
    (code / "large").write_bytes(large)
    hidden = hide(folder, code)
    agent.assign(("one", 30), workdir=hidden.path, run=PWD)
    need(agent)
    part = os.path.join(store_of(agent).part(hidden.tree), manifest.hash_of(large))
    assert hidden.bring(agent, frames=3)[0] == {}
    eventually(lambda: os.path.exists(part) and os.path.getsize(part) == (3 << 20) - 5)
    agent.connect()
    need(agent)
    answer, sent = hidden.bring(agent)
    assert answer == {"got": (2 << 20) + 5, "reused": 3 << 20, "ok": True}
    assert sent < 3 << 20
    assert hidden.asked == [
        {"lacks": [[0, 2]], "begun": {}}, {"lacks": [[1, 1]], "begun": {"1": (3 << 20) - 5}},
    ]  # fmt: skip
    assert (work(agent, "one") / "large").read_bytes() == large


def test_an_agent_that_was_killed_asks_again(agent: Agent, code: Hidden) -> None:
    agent.assign(("one", 30), workdir=code.path, run=PWD)
    need(agent)
    agent.kill()
    agent.start()
    need(agent)
    code.bring(agent)
    assert seen(work(agent, "one")) == seen(code.here)


def test_mounts_come_too_and_lie_over_what_is_there(
    agent: Agent, code: Hidden, folder: Path
) -> None:
    (folder / "key").write_text("secret\n")
    (folder / "key").chmod(0o400)
    key = hide(folder, folder / "key", name="keys")
    target = folder / "mounted"
    target.mkdir()
    (target / "mine").write_text("stays")
    mounts = [
        {"destination": str(target), "source": code.path},
        {"destination": "conf/key", "source": key.path},
    ]
    for number, name in enumerate(("one", "two")):  # the second finds everything in place
        agent.assign((name, 30), file_mounts=mounts, run=PWD, lease=f"L{number}")
        if number == 0:
            wanted = {need(agent)["tree"], need(agent)["tree"]}
            assert wanted == {code.tree, key.tree}
            code.bring(agent)
            key.bring(agent)
        conf = work(agent, name) / "conf" / "key"
        assert (conf.read_text(), conf.stat().st_mode & 0o777) == ("secret\n", 0o400)
        assert seen(target).items() >= seen(code.here).items()
        assert (target / "mine").read_text() == "stays"


def test_what_is_damaged_in_the_store_is_asked_for_again(agent: Agent, code: Hidden) -> None:
    agent.assign(("one", 30), workdir=code.path, run=PWD)
    need(agent)
    code.bring(agent)
    agent.stage("one", 30)
    digest = next(
        name for _, _, names in os.walk(agent.home / "store" / "blobs") for name in names
        if os.path.getsize(store_of(agent).blob(name)) > 1 << 20
    )  # fmt: skip
    with open(store_of(agent).blob(digest), "r+b") as file:
        file.write(b"rotten")
    agent.assign(("two", 30), workdir=code.path, run=PWD, lease="L2")
    need(agent)
    answer, _ = code.bring(agent)
    assert answer["got"] == 256 * 9000
    assert seen(work(agent, "two")) == seen(code.here)


def test_files_that_never_come_end_the_attempt(agent: Agent, code: Hidden) -> None:
    agent.assign(("one", 30), workdir=code.path, run=PWD)
    need(agent)
    first = {"op": "store", "tree": code.tree, "failed": "the snapshot is gone"}
    assert agent.ask(**first) == [{"ok": True}]
    assert agent.end("one") == ("failed", None, None, "files-failed")
    assert agent.attempts[agent.id("one")]["text"] == "the snapshot is gone"


def test_it_says_how_far_its_files_are(agent: Agent, folder: Path) -> None:
    code = folder / "code"
    code.mkdir()
    (code / "large").write_bytes(os.urandom(4 << 20))
    hidden = hide(folder, code)
    agent.assign(("one", 30), workdir=hidden.path, run=PWD)
    agent.until(lambda: text_of(agent, "one") == "waits for its files")
    assert agent.attempts[agent.id("one")]["stage"] == 10
    first = [True]

    def look() -> None:
        if first:
            first.clear()
            quarter = "waits for its files: 25 % of 4.0 MiB"
            agent.until(lambda: text_of(agent, "one") == quarter)

    hidden.bring(agent, after_each=look)
    assert not first
    agent.stage("one", 30)
    assert text_of(agent, "one") == ""


def test_it_says_why_its_files_do_not_come(agent: Agent, code: Hidden) -> None:
    agent.assign(("one", 20), workdir=code.path, run=PWD)
    need(agent)
    code.bring(agent, frames=1)
    agent.until(lambda: text_of(agent, "one") == "waits for its files: the stream has ended")


def text_of(agent: Agent, name: str) -> str:
    """What the agent said last of an attempt."""
    return str(agent.attempts.get(agent.id(name), {}).get("text", ""))


def test_what_one_agent_has_received_is_there_for_all_on_the_host(
    new_agent: Callable[[], Agent], code: Hidden, folder: Path
) -> None:
    agents = [new_agent(), new_agent()]
    for number, agent in enumerate(agents):
        agent.start("--shared", str(folder / "shared"))
        agent.assign((f"n{number}", 30), workdir=code.path, run=PWD, lease=f"L{number}")
        need(agent)
    first = Store(str(folder / "shared" / "store"))
    assert code.bring(agents[0])[0]["ok"] is True
    for number, agent in enumerate(agents):
        assert seen(work(agent, f"n{number}")) == seen(code.here)
    assert first.has(code.tree)
    for agent in agents:
        assert not os.path.exists(store_of(agent).folder)


def test_an_end_stops_the_wait(agent: Agent, code: Hidden) -> None:
    agent.assign(("one", 20), workdir=code.path, run=PWD)
    need(agent)
    assert agent.stop("one", workdir=code.path) == ("stopped", None, None, "never-started")


@pytest.mark.parametrize("tree", ["x", "../../etc", "0" * 31, "A" * 32])
def test_a_tree_has_a_name_of_its_own_kind(agent: Agent, tree: str) -> None:
    assert agent.ask(op="store", tree=tree)[0]["code"] == "agent/bad-tree"


def test_a_content_that_is_another_one_is_refused(agent: Agent, code: Hidden, folder: Path) -> None:
    agent.assign(("one", 20), workdir=code.path, run=PWD)
    need(agent)
    (code.here / "main.py").write_bytes(b"PRINT(1)\n")
    answer, _ = code.bring(agent)
    assert (answer["code"], "another one" in answer["text"]) == ("agent/store", True)
    assert not store_of(agent).has(code.tree)
