"""What somebody who follows a group is told of it."""

from __future__ import annotations

import pytest

from argosy.cli.following import Feed, Follower
from argosy.cli.screen.lines import LogLines
from argosy.cli.screen.paint import Paint
from argosy.views.shapes import NodeView, Overview, TaskView

PLAIN = Paint(False)
REFUSED = "all of it was refused (image acme/x:2: ErrImagePull)"


def a_view(phase: str, node: str, waits_for: str = "") -> Overview:
    nodes = (NodeView("web-0", phase=node, waits_for=waits_for),)
    tasks = (TaskView("web", phase=node, nodes=nodes),)
    return Overview(id="g1", name="demo", phase=phase, now=1.0, age=1.0, tasks=tasks)


def told(capsys: pytest.CaptureFixture[str], *views: Overview) -> list[str]:
    follower = Follower(Feed(), LogLines(("web",), PLAIN), paint=PLAIN)
    for view in views:
        follower.feed.queue.put(view)
    follower.feed.add("views", lambda: ())
    follower.run(["views"])
    return capsys.readouterr().err.splitlines()


TRY = (
    a_view("STARTING", "PENDING", "asked kubernetes/prod for it"),
    a_view("PENDING", "PENDING", REFUSED),
)


def test_what_every_try_goes_through_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, *TRY, *TRY, *TRY) == [
        "web-0 PENDING: asked kubernetes/prod for it",
        "demo STARTING",
        f"web-0 PENDING: {REFUSED}",
        "demo PENDING",
    ]


def test_another_reason_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, *TRY, *TRY, a_view("PENDING", "PENDING", "no room"))
    assert lines[-1] == "web-0 PENDING: no room"


def test_after_something_has_begun_all_is_news_again(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, *TRY, a_view("RUNNING", "RUNNING"), *TRY)
    assert lines.count(f"web-0 PENDING: {REFUSED}") == 2
