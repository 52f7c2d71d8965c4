"""Files that are too large, too deep or too many: one error that names the limit, at once."""

from __future__ import annotations

import subprocess
import sys
import time

from argosy.spec.keys.model import MAX_NODES, MAX_TASKS
from argosy.spec.source.file import MAX_DEPTH, MAX_FILE_BYTES, MAX_LINE_BYTES
from argosy.spec.task import PATTERN_MOST
from tests.spec.reading import errors, group

PARALLEL = "name: g\nexecution: parallel\n"


def many(count: int) -> str:
    return PARALLEL + "".join(f"---\nname: t{i}\nrun: x\n" for i in range(count))


def test_ten_thousand_tasks_are_one_error():
    (error,) = errors(many(10_000))
    assert error.code == "spec/too-many-tasks"
    assert "at most 1,000 tasks" in error.text


def test_as_many_tasks_as_are_allowed_are_read():
    assert len(group(many(MAX_TASKS)).tasks) == MAX_TASKS
    (error,) = errors(many(MAX_TASKS + 1))
    assert error.code == "spec/too-many-tasks"
    pipeline = "---\n".join(f"name: t{i}\nrun: x\n" for i in range(MAX_TASKS + 1))
    assert errors(pipeline)[0].code == "spec/too-many-tasks"


def test_nodes_of_all_tasks_are_counted():
    each = MAX_NODES // 2 + 1
    text = PARALLEL + "".join(f"---\nname: {n}\nnum_nodes: {each}\nrun: x\n" for n in "ab")
    (error,) = errors(text)
    assert error.code == "spec/too-many-nodes"
    assert "10,002" in error.text


def test_a_line_of_a_megabyte_is_named():
    (error,) = errors("run: " + "x" * 1_000_000)
    assert (error.code, error.place.line) == ("spec/line-too-long", 1)
    assert f"{MAX_LINE_BYTES:,}" in error.text
    assert len(error.place.source) <= 200
    assert len(group("run: |\n  " + "x" * (MAX_LINE_BYTES - 10)).tasks) == 1


def test_a_huge_file_is_named_without_being_read():
    (error,) = errors(b"x" * (MAX_FILE_BYTES + 1))
    assert error.code == "spec/too-large"


def test_deep_nesting_is_named():
    (error,) = errors("config: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert error.code == "spec/too-complex"
    assert errors("[" * 100_000)[0].code in ("spec/too-complex", "spec/not-yaml")
    assert errors("{a: " * 5_000)[0].code in ("spec/too-complex", "spec/not-yaml")
    assert errors("".join(" " * i + "a:\n" for i in range(500)))[0].code == "spec/too-complex"


def test_many_errors_are_cut_and_counted():
    found = errors("run: x\n" + "".join(f"zz{i}: 1\n" for i in range(250)))
    assert len(found) == 101
    assert found[-1].code == "spec/more-errors"
    assert found[-1].text.startswith("150 ")


def test_long_chains_and_circles_of_dependencies_are_quick():
    chain = PARALLEL + "".join(
        f"---\nname: t{i}\nrun: x\ndepends_on: [t{i + 1}]\n" for i in range(MAX_TASKS - 1)
    )
    assert len(group(chain + f"---\nname: t{MAX_TASKS - 1}\nrun: x\n").tasks) == MAX_TASKS
    circle = chain + f"---\nname: t{MAX_TASKS - 1}\nrun: x\ndepends_on: [t0]\n"
    assert [error.code for error in errors(circle)] == ["spec/cycle"]


def test_words_of_any_length_are_compared_quickly():
    name = "a" * 100_000
    found = errors(f"{PARALLEL}---\nname: a\n{'b' * 1_000}: 1\nrun: x\ndepends_on: [{name}]\n")
    assert [error.code for error in found] == ["spec/unknown-key", "spec/unknown-task"]
    assert all(len(error.text) < 300 for error in found)


def test_cost_grows_with_the_number_of_tasks_only():
    """Near linear: ten times the tasks may cost at most forty times the processor time."""

    def cost(count: int) -> float:
        text = many(count)
        best = float("inf")
        for _ in range(5):
            begun = time.process_time()
            group(text)
            best = min(best, time.process_time() - begun)
        return best

    assert cost(1_000) <= 40 * cost(100)


def test_reading_needs_no_heavy_library():
    code = (
        "import sys, argosy.spec as s; s.parse('run: x', file='f', base='/w'); s.schema();"
        "heavy = {'pydantic', 'sqlalchemy', 'fastapi', 'rich', 'asyncio', 'socket', 'logging',"
        " 'subprocess', 'threading', 'http'} & {m.partition('.')[0] for m in sys.modules};"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_megabyte_of_blank_lines_in_a_script_is_read():
    # A lint that looked for its words anew from each of them would take hours.
    assert len(group("run: |\n  echo a\n" + "\n" * 1_000_000 + "  echo b\n").tasks) == 1


def test_a_regular_expression_that_no_agent_searches_is_an_error():
    text = "run: x\nready: {log: " + "a" * (PATTERN_MOST + 1) + "}\n"
    (error,) = errors(text)
    assert error.code == "spec/regular-expression"
    assert len(group("run: x\nready: {log: " + "a" * PATTERN_MOST + "}\n").tasks) == 1
