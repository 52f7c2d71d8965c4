"""Programs that behave badly: the group says what happened, ends in time, and leaves nothing."""

from __future__ import annotations

import os
import re

import pytest

from tests.faults.scene import (
    ended,
    events,
    follow,
    group,
    lives,
    nap,
    node,
    running,
    sleeper,
    task,
    until,
    with_word,
)
from tests.whole.home import Home

pytestmark = pytest.mark.whole

TAKEN = """
exec python3 - <<'PY'
import os, socket
first = socket.create_server((os.environ["ARGOSY_HOSTNAME"], 7000))
second = socket.create_server((os.environ["ARGOSY_HOSTNAME"], 7000))
PY
"""
ORDINARY = 61_234  # a user that nobody is


def test_a_port_in_use_names_the_node_and_shows_its_log(one_home: Home) -> None:
    text = group(
        "port", task("server", TAKEN), task("idle", f"exec sleep {nap(one_home)}"),
        header="on_failure: stop\n",
    )  # fmt: skip
    said = follow(one_home, "port", text).ended()
    assert said.code == 100, said.told()
    assert "Address already in use" in said.out
    assert "server-0 exited with 1" in said.err
    assert "argosy logs port/server/0" in said.err
    found = one_home.group("port")
    assert (found["root"], found["root_text"]) == ("server-0", "server-0 exited with 1")
    assert node(one_home, "port", "idle-0")["outcome"] == "stopped"


def test_a_program_that_ignores_sigterm_is_killed_after_its_grace(one_home: Home) -> None:
    stubborn = f"trap 'echo no' TERM; while :; do sleep {nap(one_home)}; done"
    running(one_home, "stubborn", group("stubborn", task("t", stubborn, "grace: 1s")))
    one_home.argosy("cancel", "stubborn").good()
    found = node(one_home, "stubborn", "t-0")
    assert (found["outcome"], found["signal"]) == ("stopped", 9), found
    said = one_home.argosy("logs", "stubborn/t/0").good()
    assert "no" in said.out, "its trap was never called"
    assert not with_word(nap(one_home))
    assert one_home.argosy("wait", "stubborn").code == 103


def test_cancel_now_asks_nobody(one_home: Home) -> None:
    stubborn = f"trap '' TERM; while :; do sleep {nap(one_home)}; done"
    running(one_home, "now", group("now", task("t", stubborn, "grace: 1h")))
    one_home.argosy("cancel", "now", "--now").good()
    assert node(one_home, "now", "t-0")["signal"] == 9
    assert not with_word(nap(one_home))


def test_grandchildren_that_hold_the_log_do_not_hold_the_end(one_home: Home) -> None:
    for number, kept in enumerate((f"sleep {nap(one_home)} &", f"setsid sleep {nap(one_home)} &")):
        name = f"held{number}"
        text = group(name, task("t", f"{kept}\necho done"))
        said = follow(one_home, name, text).ended().good()
        assert "done" in said.out
        assert not with_word(nap(one_home))


def test_a_fork_bomb_under_a_process_limit_ends_with_its_group(one_home: Home) -> None:
    bomb = f"""
ulimit -u 60
bomb() {{ sleep {nap(one_home)} & bomb | bomb & }}
bomb 2>&1 | head -c 2000
wait
sleep {nap(one_home)}
"""
    if os.geteuid() == 0:  # who has a limit must not be root
        drop = f"setpriv --reuid {ORDINARY} --regid {ORDINARY} --clear-groups"
        bomb = f"cd /; exec {drop} bash -c '{bomb}'"
    else:
        bomb = bomb.replace("ulimit -u 60", "ulimit -u $(($(ps -u $UID -L | wc -l) + 60))")
    running(one_home, "bomb", group("bomb", task("t", bomb, "grace: 1s")))
    until("it has forked", lambda: len(with_word(nap(one_home))) > 20)
    one_home.argosy("exec", "bomb/t/0", "--", "true")  # it may fail, and must not hang
    one_home.argosy("cancel", "bomb").good()
    assert not with_word(nap(one_home))


def test_a_program_that_deletes_its_own_working_directory_is_still_looked_after(
    one_home: Home,
) -> None:
    (one_home.path.parent / "code").mkdir()
    (one_home.path.parent / "code" / "file").write_text("x")
    once = 'test -f file || exit 9; [ "$ARGOSY_ATTEMPT" = 1 ] || { echo again; exit 0; }'
    run = f'{once}\nrm -rf "$PWD"\necho gone\nexit 3'
    retry = "restart: {on: [failure], max: 1, backoff: 0s..1s}"
    text = group("gone", task("t", run, "workdir: code", retry))
    said = follow(one_home, "gone", text).ended().good()
    assert "gone" in said.out
    assert "again" in said.out, "the second attempt had no working directory of its own"


def test_output_that_is_no_text_is_kept_and_shown(one_home: Home) -> None:
    run = r"printf 'caf\351 \377\376 \000 \033[31mred\033[0m\n'; echo after"
    said = follow(one_home, "bytes", group("bytes", task("t", run))).ended().good()
    assert "caf" in said.out
    assert "after" in said.out
    kept = list(one_home.path.glob("infra/local/machine/hosts/*/attempts/*/output"))
    whole = b"caf\xe9 \xff\xfe \x00 \x1b[31mred\x1b[0m\nafter\n"
    assert whole in [file.read_bytes() for file in kept]


def test_a_line_of_a_megabyte_arrives_whole(one_home: Home) -> None:
    run = "head -c 1048576 /dev/zero | tr '\\0' y; echo; echo after"
    said = follow(one_home, "wide", group("wide", task("t", run))).ended().good()
    assert max(len(found) for found in re.findall("y+", said.out)) == 1 << 20
    assert "after" in said.out
    again = one_home.argosy("logs", "wide/t/0", "--grep", "^after$").good()
    assert again.out == "after\n"


def test_a_program_killed_by_a_signal_says_which(one_home: Home) -> None:
    said = follow(one_home, "sig", group("sig", task("t", "kill -SEGV $$"))).ended()
    assert said.code == 100
    assert "SIGSEGV" in said.err, said.told()
    assert ended(one_home, "sig")["tasks"][0]["nodes"][0]["signal"] == 11


def test_a_program_that_empties_its_log_is_told_of(one_home: Home) -> None:
    go = one_home.path.parent / "go"
    run = f"""
echo first
until test -e {go}; do sleep 0.05; done
echo second >/dev/stderr
exec sleep {nap(one_home)}
"""
    running(one_home, "emptied", group("emptied", task("t", run)))
    until("it is seen", lambda: "first" in one_home.argosy("logs", "emptied").good().out)
    go.touch()
    assert lives(sleeper(one_home))
    until(
        "it is told",
        lambda: "log-truncated" in {one["code"] for one in events(one_home, "emptied")},
    )
    one_home.argosy("cancel", "emptied", "--now").good()
