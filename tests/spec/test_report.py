"""How errors and warnings look."""

from __future__ import annotations

import pytest

from argosy.errors import CapacityError, InputErrors, Place
from argosy.spec import Warning_, render
from tests.spec.reading import errors, read, said

BAD = """\
name: rl
resources:
  cpu: 4
  accelerators: H100:x
run: x
"""


def test_all_errors_of_a_file_with_line_caret_and_hint():
    with pytest.raises(InputErrors) as caught:
        read(BAD)
    assert render(caught.value, (), False) == (
        "error: `cpu` is not a key of `resources`\n"
        "where: group.yaml:3:3\n"
        "    3 |   cpu: 4\n"
        "      |   ^\n"
        "hint: did you mean `cpus`?\n"
        "\n"
        "error: `resources.accelerators` takes a card and a whole number of them, not `H100:x`\n"
        "where: group.yaml:4:17\n"
        "    4 |   accelerators: H100:x\n"
        "      |                 ^\n"
        "hint: write `H100`, `H100:8`, `{H100: 8}`, `80GB+`, or a list of those\n"
    )


def test_any_error_and_several_hints():
    error = CapacityError("nobody has it", hint=("do this", "or that"), place=Place("f.yaml"))
    assert render(error, (), False) == (
        "error: nobody has it\nwhere: f.yaml\nhint: do this\nhint: or that\n"
    )


def test_warnings_follow_the_errors():
    parsed = read("run: x\nname: a\nenvs: {A: yes}\n")
    shown = render((), parsed.warnings, False)
    assert shown.startswith("warning: YAML reads `yes` as True")
    assert "\x1b" not in shown
    assert render((), (), True) == ""


def test_color_only_when_asked_for():
    warning = Warning_("w", Place("f", 1, 1, "a: b"), "h")
    assert "\x1b[" in render((), (warning,), True)
    plain = render((), (warning,), False)
    assert plain == "warning: w\nwhere: f:1:1\n    1 | a: b\n      | ^\nhint: h\n"


@pytest.mark.parametrize(
    ("source", "column", "caret"),
    [
        ("\tcpus: x", 2, "\t^"),
        ("日本: x", 3, "    ^"),
        ("e\u0301: x", 3, " ^"),
        ("a\x1b[31m: x", 3, "     ^"),
    ],
)
def test_caret_stands_below_the_column(source, column, caret):
    warning = Warning_("w", Place("f", 1, column, source))
    lines = render((), (warning,), False).splitlines()
    assert lines[-1] == f"      | {caret}"
    assert "\x1b" not in lines[-2]


def test_long_lines_are_cut_around_the_column():
    place = Place("f", 1, 180, "x" * 179 + "HERE" + "y" * 10)
    lines = render((), (Warning_("w", place),), False).splitlines()
    assert len(lines[-2]) <= 8 + 160
    assert lines[-2][lines[-1].index("^") :].startswith("HERE")


def test_text_of_the_file_cannot_steer_the_terminal():
    with pytest.raises(InputErrors) as caught:
        read('run: x\n"\\e[2J": 1\n')
    assert "\x1b" not in render(caught.value, (), False)


BROKEN = """\
# three documents are broken, one is not
name: rl
execution: parallel
---
name: one
run: "not closed
---
name: two
envs: {A: x
run: y
---
name: three
run: x
name: again
---
name: four
  run: x
"""


def test_every_document_that_is_not_yaml_is_an_error_in_one_go():
    found = errors(BROKEN)
    assert said(found) == [
        "6:6 open-quote",
        "10:4 not-yaml",
        "14:1 duplicate-key",
        "17:6 not-yaml",
    ]
    assert [error.place.source for error in found][-1] == "  run: x"


def test_a_template_that_is_no_yaml_is_one_error_whatever_else_it_looks_like():
    found = errors(
        "name: a\n{% if x %}\nrun: x\n---\nname: b\n{% if y %}\n---\nname: c\n  run: x\n"
    )
    assert said(found) == ["2:1 template"]


@pytest.mark.parametrize("text", ["--- {\n", "---\n---\n[\n", "a: [\n---", "---\na: 'x\n---\n"])
def test_broken_text_always_has_a_place(text):
    assert all(error.place is not None for error in errors(text))
