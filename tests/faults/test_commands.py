"""The commands on a group that runs: exec, cp, forward, logs, restart, replace, wait, rm."""

from __future__ import annotations

import re
import signal
import urllib.request
from collections.abc import Iterator

import pytest

from tests.faults.scene import (
    detach,
    ended,
    follow,
    group,
    nap,
    node,
    refused,
    running,
    sleeper,
    task,
    until,
    with_word,
    write,
)
from tests.whole.home import Home

pytestmark = pytest.mark.whole

WEB = """
echo "attempt $ARGOSY_ATTEMPT begins"
for i in 1 2 3 4 5 6 7 8 9; do echo "line $i"; done
exec python3 -u -m http.server --bind "$ARGOSY_HOSTNAME" 8000
"""


@pytest.fixture(scope="module")
def box(one_home: Home) -> Iterator[Home]:
    """A home in which the group `box` serves its working directory."""
    ready = "ready: {http: /, port: 8000}"
    other = task("other", f"exec sleep {nap(one_home)}", "grace: 1s")
    text = group("box", task("web", WEB, ready, "grace: 1s", "envs: {MINE: 'a b'}"), other)
    running(one_home, "box", text)
    until("it is healthy", lambda: node(one_home, "box", "web-0")["healthy"])
    yield one_home
    one_home.argosy("cancel", "box", "--now")


def test_exec_gives_the_code_and_the_streams_of_the_command(box: Home) -> None:
    said = box.argosy("exec", "box/web/0", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (said.code, said.out, said.err) == (7, "out\n", "err\n")
    said = box.argosy("exec", "box/web/0", "--", "sh", "-c", "kill -TERM $$")
    assert said.code == 128 + signal.SIGTERM
    said = box.argosy("exec", "box/web", "--", "sh", "-c", "echo $MINE $ARGOSY_HOSTNAME; pwd")
    assert said.good().out.startswith("a b web-0.box\n")


def test_exec_of_what_is_not_there_says_so(box: Home) -> None:
    said = box.argosy("exec", "box/web/0", "--", "no-such-program")
    assert said.code in (3, 127), said.told()
    assert "no-such-program" in said.err
    refused(box.argosy("exec", "box/web/3", "--", "true"), 3, "web/3", "box/web/0")
    refused(box.argosy("exec", "box", "--", "true"), 2, "2 nodes", "box/other/0")
    refused(box.argosy("exec", "bax/web/0", "--", "true"), 3, "'bax'", "box")


def test_cp_carries_files_and_folders_both_ways(box: Home) -> None:
    here = box.path.parent
    whole = bytes(range(256)) * 4096
    (here / "up file").write_bytes(whole)
    (here / "up file").chmod(0o755)
    (here / "folder" / "deep").mkdir(parents=True)
    (here / "folder" / "deep" / "one").write_text("1")
    box.argosy("cp", "up file", "box/web/0:down file").good()
    box.argosy("cp", "folder", "box/web/0:taken").good()
    shown = box.argosy("exec", "box/web/0", "--", "sh", "-c", "wc -c <'down file'; cat taken/*/one")
    assert shown.good().out.split() == [str(len(whole)), "1"]
    box.argosy("cp", "box/web/0:down file", "back").good()
    box.argosy("cp", "box/web/0:taken", "again").good()
    assert (here / "back").read_bytes() == whole
    assert (here / "back").stat().st_mode & 0o777 == 0o755
    assert (here / "again" / "deep" / "one").read_text() == "1"
    refused(box.argosy("cp", "box/web/0:nothing", "."), 3, "nothing")
    refused(box.argosy("cp", "nothing", "box/web/0:x"), 3, "nothing")


def test_forward_reaches_a_port_of_a_node(box: Home) -> None:
    forwarding = box.start("forward", "box/web/0", "0:8000")
    try:
        forwarding.until("it listens", lambda: "Ctrl-C" in forwarding.so_far().err)
        match = re.search(r"127\.0\.0\.1:(\d+)", forwarding.so_far().err)
        assert match
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{match[1]}/", timeout=20) as answer:
                assert answer.status == 200
    finally:
        forwarding.process.send_signal(signal.SIGINT)
    assert forwarding.ended(20).code == 0


def test_a_restart_by_hand_keeps_the_logs_of_both_attempts(box: Home) -> None:
    before = node(box, "box", "web-0")["attempt"]
    other = sleeper(box)
    box.argosy("restart", "box/web/0").good()
    until("a new attempt", lambda: node(box, "box", "web-0")["attempt"] == before + 1)
    until("it is healthy", lambda: node(box, "box", "web-0")["healthy"])
    assert sleeper(box) == other, "another task was restarted too"
    previous = box.argosy("logs", "box/web/0", "--previous").good().out
    assert f"attempt {before} begins" in previous
    assert f"attempt {before + 1} begins" not in previous
    newest = box.argosy("logs", "box/web/0", "--attempt", str(before + 1)).good().out
    assert f"attempt {before + 1} begins" in newest
    both = box.argosy("logs", "box/web/0").good().out
    assert both.index(f"attempt {before} begins") < both.index(f"attempt {before + 1} begins")


def test_logs_are_cut_and_filtered(box: Home) -> None:
    newest = str(node(box, "box", "web-0")["attempt"])
    logs = ("logs", "box/web/0", "--attempt", newest)
    tail = box.argosy(*logs, "--tail", "2").good().out
    assert len(tail.splitlines()) == 2
    found = box.argosy(*logs, "--grep", "^line [3-5]$").good().out
    assert found.splitlines() == ["line 3", "line 4", "line 5"]
    assert "line 1" in box.argosy(*logs, "--since", "1h").good().out
    refused(box.argosy(*logs, "--grep", "("), 2, "not a regular expression")
    refused(box.argosy("logs", "box/wep"), 3, "wep", "box/web")


def test_a_live_name_is_refused_and_replaced_on_demand(box: Home) -> None:
    sleeping = group("twin", task("t", f"exec sleep {nap(box, 1)}", "grace: 1s"))
    running(box, "twin", sleeping)
    first, id_ = sleeper(box, 1), box.group("twin")["id"]
    said = box.argosy("launch", "-y", write(box, "twin", sleeping))
    refused(said, 7, "'twin'", id_, "--replace", "--name")
    detach(box, "twin", sleeping, "--replace")
    until("the new one runs", lambda: with_word(nap(box, 1)) not in ([], [first]))
    assert box.group("twin")["id"] != id_
    assert box.argosy("wait", id_).code == 103
    refused(box.argosy("rm", "twin"), 7, "twin", "argosy cancel")
    box.argosy("cancel", "twin").good()
    follow(box, "twin", "name: twin\nrun: echo reused\n").ended().good()
    assert ended(box, "twin")["phase"] == "SUCCEEDED"
    assert "reused" in box.argosy("logs", "twin").good().out


def test_wait_gives_up_after_its_timeout(box: Home) -> None:
    said = box.argosy("wait", "box", "--timeout", "1s")
    assert said.code == 124, said.told()
    assert "argosy explain box" in said.err


def test_what_is_removed_is_gone_with_its_logs(box: Home) -> None:
    follow(box, "short", "name: short\nrun: echo gone soon\n").ended().good()
    id_ = box.group("short")["id"]
    kept = list(box.path.glob(f"infra/local/machine/hosts/*/attempts/{id_}.*"))
    assert kept
    box.argosy("rm", "short").good()
    refused(box.argosy("status", "short"), 3, "'short'")
    until("its logs are gone", lambda: not any(one.exists() for one in kept))
    assert not list(box.path.glob(f"**/{id_}*"))


def test_a_group_restarted_as_a_whole_is_started_anew(box: Home) -> None:
    before = sleeper(box)
    box.argosy("restart", "box").good()
    until("both are new", lambda: with_word(nap(box)) not in ([], [before]))
    until("it is healthy", lambda: node(box, "box", "web-0")["healthy"])
    assert box.group("box")["phase"] == "RUNNING"
