"""What stands on the screen: log lines, tables, groups, plans, errors, live blocks."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from argosy.cli.errors import error_lines
from argosy.cli.screen.group import closing_lines, group_lines, progress_lines, reason_lines
from argosy.cli.screen.lines import (
    BAR_SECONDS,
    PENDING_MOST,
    LogLines,
    Source,
    as_written,
    collapsed,
    tame,
)
from argosy.cli.screen.live import Live
from argosy.cli.screen.paint import Paint, paint_for
from argosy.cli.screen.plan import brief_lines, plan_lines
from argosy.cli.screen.table import cut, table, width
from argosy.errors import InputError, InputErrors, NotFound, Place, Unreachable
from argosy.views.shapes import (
    NodeView,
    Overview,
    PlannedNode,
    PlannedTask,
    PlanView,
    ReasonView,
    SpentView,
    TaskView,
)

PLAIN = Paint(False)
COLOUR = Paint(True)


def lines_of(*order: str, **changes: object) -> LogLines:
    return LogLines(order or ("trainer", "rollout"), PLAIN, **changes)  # type: ignore[arg-type]


def test_line_is_printed_once_it_is_whole() -> None:
    lines = lines_of()
    assert lines.feed("trainer", 0, 1, b"loss ", 0.0) == ""
    assert lines.feed("rollout", 1, 1, b"ok\n", 0.0) == "[rollout-1] ok\n"
    assert lines.feed("trainer", 0, 1, b"0.5\nnext", 0.0) == "[trainer-0] loss 0.5\n"
    assert lines.end(0.0) == "[trainer-0] next\n"


def test_prefix_shows_the_attempt_from_the_second_on() -> None:
    lines = lines_of(width=11)
    assert lines.feed("trainer", 0, 1, b"a\n", 0.0) == "[trainer-0]   a\n"
    assert lines.feed("trainer", 0, 2, b"a\n", 0.0) == "[trainer-0@2] a\n"


def test_attempts_do_not_share_an_unfinished_line() -> None:
    lines = lines_of()
    lines.feed("trainer", 0, 1, b"torn", 0.0)
    assert lines.feed("trainer", 0, 2, b"new\n", 0.0) == "[trainer-0@2] new\n"


def test_colour_of_a_task_is_its_place_in_the_group() -> None:
    order = ("a", "b")
    first = LogLines(order, COLOUR).feed("b", 0, 1, b"x\n", 0.0)
    again = LogLines(order, COLOUR)
    again.feed("a", 3, 1, b"x\n", 0.0)
    assert again.feed("b", 0, 1, b"x\n", 0.0) == first
    assert first.startswith("\x1b[33m[b-0]\x1b[0m ")


def test_name_with_capitals_and_underscores_has_its_dns_form() -> None:
    assert lines_of("PPO_x").feed("PPO_x", 0, 1, b"a\n", 0.0) == "[ppo-x-0] a\n"


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert lines_of().feed("trainer", 0, 1, b"\xff\xfeok\n", 0.0) == "[trainer-0] \ufffd\ufffdok\n"


def test_character_split_between_chunks_stays_whole() -> None:
    lines = lines_of()
    lines.feed("trainer", 0, 1, "é".encode()[:1], 0.0)
    assert lines.feed("trainer", 0, 1, "é\n".encode()[1:], 0.0) == "[trainer-0] é\n"


def test_timestamps_stand_before_the_prefix() -> None:
    lines = lines_of(timestamps=True, stamp=lambda at: f"T{at:g}")
    assert lines.feed("trainer", 0, 1, b"a\nb\n", 7.0) == "T7 [trainer-0] a\nT7 [trainer-0] b\n"


def test_without_prefix_lines_are_as_they_were() -> None:
    assert lines_of(prefix=False).feed("trainer", 0, 2, b" a\n\n", 0.0) == " a\n\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain", "plain"),
        ("windows\r", "windows"),
        ("10%\r50%\r100%", "100%"),
        ("10%\r100%\r", "100%"),
        ("100%\r    ", "100%"),
        ("\r\r", ""),
    ],
)
def test_rewritten_line_shows_its_last_state(line: str, shown: str) -> None:
    assert collapsed(line) == shown


def test_into_a_file_lines_are_as_the_program_wrote_them(tmp_path: Path) -> None:
    written = b"10%\r100%\nwindows\r\n\xff\x1b[K\r\n"
    with (tmp_path / "log").open("w", encoding="ascii") as file:
        lines = lines_of(prefix=False, raw=as_written(file))
        for at, byte in enumerate(written):
            file.write(lines.feed("trainer", 0, 1, bytes([byte]), at * BAR_SECONDS))
    assert (tmp_path / "log").read_bytes() == written


def test_bar_without_an_end_shows_its_state_now_and_then() -> None:
    source = Source()
    shown = [line for at in range(41) for line in source.feed(b"%d%%\r" % at, float(at))]
    assert len(shown) == 40 // int(BAR_SECONDS)
    assert shown[0] == f"{int(BAR_SECONDS)}%"
    assert len(source.pending) < 20


def test_endless_line_is_let_go_in_parts() -> None:
    source = Source()
    assert source.feed(b"x" * PENDING_MOST, 0.0) == []
    assert source.feed(b"y", 0.0) == ["x" * PENDING_MOST + "y"]
    assert source.end() == []


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("a\x1b[2Jb", "ab"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("bell\x07\x08", "bell"),
        ("\x1b[31mred", "\x1b[31mred\x1b[0m"),
        ("tab\tstays é", "tab\tstays é"),
        ("\x1bc\x1b(Bx", "x"),
    ],
)
def test_terminal_gets_colours_and_no_other_control(line: str, shown: str) -> None:
    assert tame(line) == shown


def test_table_leaves_empty_columns_out_and_aligns_wide_text() -> None:
    lines = table(("A", "B", "C"), [("日本", "", "x"), ("z", "", "y")], PLAIN)
    assert lines == ["A     C", "日本  x", "z     y"]
    assert width("日本") == 4
    assert width("e\u0301") == 1


def test_cut_line_keeps_its_colours_whole() -> None:
    assert cut("\x1b[31mabcdef\x1b[0m", 4) == "\x1b[31mabc~\x1b[0m"
    assert cut("abcd", 4) == "abcd"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_live_block_is_drawn_over_itself_and_taken_away() -> None:
    screen = Terminal()
    live = Live(screen)
    live.draw(["one", "two"])
    live.draw(["one", "two"])
    assert screen.getvalue().count("one") == 1
    live.draw(["three"])
    assert "\x1b[2A" in screen.getvalue()
    live.clear()
    assert screen.getvalue().endswith("\x1b[1A\r\x1b[J")
    assert Live(io.StringIO()).on is False


def test_colour_follows_the_terminal_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint_for(Terminal()).on
    assert not paint_for(io.StringIO()).on
    monkeypatch.setenv("NO_COLOR", "1")
    assert not paint_for(Terminal()).on


def a_view(**changes: object) -> Overview:
    nodes = (
        NodeView("trainer-0", phase="RUNNING", stage="RUNNING", healthy=True, since=90.0),
        NodeView("trainer-1", 1, phase="STARTING", stage="READY", waits_for="rollout to be healthy",
                 waits_since=95.0),
    )  # fmt: skip
    tasks = (
        TaskView("trainer", phase="STARTING", up=1, nodes=nodes),
        TaskView("rollout", False, "RUNNING", 1, ("rollout.demo:8000",),
                 (NodeView("rollout-0", phase="RUNNING", healthy=False),)),
    )  # fmt: skip
    fields: dict[str, object] = {
        "id": "g1", "name": "demo", "phase": "STARTING", "now": 100.0, "age": 42.0, "tasks": tasks,
    }  # fmt: skip
    return Overview(**{**fields, **changes})  # type: ignore[arg-type]


def test_progress_shows_what_is_not_up_why_and_since_when() -> None:
    assert progress_lines(a_view(), 2.0, PLAIN) == [
        "demo STARTING 44 s, 2 of 3 up",
        "  trainer  STARTING  1 of 2 up; waits 7.0 s: rollout to be healthy",
    ]
    running = progress_lines(a_view(phase="RUNNING"), 0.0, PLAIN)
    assert running == ["demo RUNNING 42 s, 2 of 3 up  (Ctrl-C detaches)"]


def test_files_on_their_way_are_a_bar() -> None:
    """Of the node that has least; who has all of them is not counted."""
    texts = ("trainer-0 is preparing: waits for its files: 75 % of 12 MiB",
             "trainer-1 is preparing: waits for its files: 25 % of 12 MiB", "")  # fmt: skip
    nodes = tuple(
        NodeView(f"t-{n}", phase="STARTING", waits_for=one) for n, one in enumerate(texts)
    )
    view = a_view(tasks=(TaskView("t", phase="STARTING", nodes=nodes),))
    bar = "files [######..................] 25 % of 12 MiB, the slowest of 2 nodes"
    assert progress_lines(view, 0.0, PLAIN)[1] == f"  t  STARTING  0 of 3 up; {bar}"


def test_group_on_a_screen() -> None:
    reasons = (ReasonView("depends-on", "trainer-1", "rollout is not healthy", age=5.0, hint="do"),)
    view = a_view(reasons=reasons, restarts_spent=(SpentView("*", 1, 2),), unreachable=("h9",))
    text = "\n".join(group_lines(view, PLAIN))
    assert "demo  STARTING" in text
    assert "rollout-0 aux  RUNNING (not healthy)" in text
    assert "trainer-1 waits 5.0 s: rollout is not healthy [depends-on]\n  hint: do" in text
    assert "restarts spent: the group 1 of 2" in text
    assert "may still hold something: h9" in text
    assert "balanced: rollout.demo:8000" in text


def test_ended_node_tells_how_it_ended() -> None:
    node = NodeView("t-0", phase="FAILED", outcome="failed", signal=9, cause="oom")
    view = a_view(tasks=(TaskView("t", nodes=(node,)),))
    assert any("SIGKILL: oom" in line for line in group_lines(view, PLAIN))


def test_reason_without_an_age_tells_none() -> None:
    assert reason_lines((ReasonView("c", "", "text"),), PLAIN) == ["the group waits: text [c]"]


def test_one_cause_is_told_once_for_all_who_wait_for_it() -> None:
    reasons = [ReasonView("back-off", f"web-{i}", "waits", age=float(i), hint="x") for i in "01"]
    assert reason_lines([*reasons, ReasonView("a", "", "t")], Paint(False)) == [
        "web-0, web-1: waits 1.0 s: waits [back-off]",
        "  hint: x",
        "the group waits: t [a]",
    ]


def test_closing_lines_tell_the_root_cause_and_what_to_do() -> None:
    view = a_view(
        phase="FAILED", exit_code=100, root="trainer-1", root_attempt=1, restarts=2,
        root_text="trainer-1 exited with 3", unreachable=("h9",),
    )  # fmt: skip
    lines = closing_lines(view, PLAIN)
    assert lines[0] == "demo FAILED after 42 s: trainer-1 exited with 3 (2 restarts)"
    assert lines[1] == "hosts that may still hold something: h9"
    assert lines[2] == "hint: `argosy logs demo/trainer/1 --tail 50` shows its last words"


def a_plan(num_nodes: int = 2, **changes: object) -> PlanView:
    nodes = tuple(
        PlannedNode(f"t-{i}", f"t-{i}.demo", "local", "h1", "2 cpus") for i in range(num_nodes)
    )
    task = PlannedTask("t", num_nodes, nodes=nodes, restart="never", ending="when it ends")
    fields: dict[str, object] = {"name": "demo", "tasks": (task,), "warnings": ("mind this",)}
    return PlanView(**{**fields, **changes})  # type: ignore[arg-type]


def test_plan_on_a_screen() -> None:
    lines = plan_lines(a_plan(), PLAIN)
    assert lines[0] == "demo: 1 task, 2 nodes"
    assert "t-1   t-1.demo   local:h1  2 cpus  at once" in lines
    assert "t: restart never; ends when it ends" in lines
    assert lines[-1] == "warning: mind this"
    assert brief_lines(a_plan(), PLAIN)[-1] == "warning: mind this"


def test_plan_of_many_nodes_folds_them() -> None:
    text = "\n".join(plan_lines(a_plan(1000), PLAIN))
    assert "and 997 more" in text
    assert "t-999" in text
    assert len(text.splitlines()) < 12


def test_plan_that_does_not_fit_says_so() -> None:
    plan = a_plan(fits=False, never=True, refused=("needs 8 x H100",))
    assert plan_lines(plan, PLAIN)[-1] == "it does not fit: not even when nobody else is there"
    assert "refused: needs 8 x H100" in brief_lines(plan, PLAIN)


def test_error_with_place_caret_and_hints() -> None:
    place = Place("g.yaml", 3, 5, "  a: b")
    lines = error_lines(InputError("wrong", hint=("do this", "or that"), place=place), PLAIN)
    assert lines == [
        "error: wrong", "where: g.yaml:3:5", "    3 |   a: b", "      |     ^",
        "hint: do this", "hint: or that",
    ]  # fmt: skip


def test_each_of_several_errors_is_shown() -> None:
    both = InputErrors((InputError("one", hint="x"), InputError("two", hint="y")))
    assert [line for line in error_lines(both, PLAIN) if line.startswith("error")] == [
        "error: one",
        "error: two",
    ]


def test_further_lines_of_an_error_stand_below_it() -> None:
    lines = error_lines(Unreachable("no start\nlast\nwords", hint="look"), PLAIN)
    assert lines == ["error: no start", "  last", "  words", "hint: look"]


def test_error_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in "".join(error_lines(NotFound("no group \x1b[2J"), PLAIN))
