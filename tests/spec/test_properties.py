"""Whatever is in a file: a spec, or errors that say what is wrong; and the same each time."""

from __future__ import annotations

import string

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.errors import InputErrors
from argosy.model.spec import Execution, GroupSpec
from argosy.spec import Overrides, Parsed, interpret_env_file, parse, render
from argosy.spec.keys import durations, model
from argosy.spec.source.words import edits, nearest_word

WORDS = sorted(
    {key.name for record in (model.TASK, model.HEADER, model.RESOURCES, model.READY, model.RESTART,
                             model.SERVICE, model.STORAGE, model.VOLUME)
     for key in record.keys}
)  # fmt: skip
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 70_000),
    st.floats(),
    st.sampled_from([
        "H100:8", "a100", "80GB+", "4+", "32+", "16Gi", "1-2", "local", "aws/x/y", "k8s/c", "*",
        "$A", "${A}", "${A:-b}", "{{ a }}", "30s", "5m", "failure", "lost", "node", "group",
        "healthy", "started", "all", "head", "parallel", "serial", "~/x", "../x", "s3://b/c", "/p",
        "a", "b", "A_B", "", "<<", "on", "\0", "é", "\ud7ff", "🚢", "x" * 300,
    ]),
    st.text(max_size=20),
)  # fmt: skip
KEYS = st.one_of(st.sampled_from(WORDS), st.text(string.ascii_letters + "_-:$ ", max_size=6))
TREES = st.recursive(
    VALUES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=12,
)
DOCUMENTS = st.lists(st.one_of(st.dictionaries(KEYS, TREES, max_size=8), TREES), max_size=4)


def outcome(text: str | bytes, **overrides) -> Parsed | list[dict]:
    """The spec, or the errors as plain values. Anything else that is raised fails the test."""
    parsed, failure = attempt(text, overrides)
    if parsed is None:
        assert failure.errors
        assert all(one.hints and one.code.startswith("spec/") for one in failure.errors)
        assert render(failure, (), False).count("error: ") >= len(failure.errors)
        return [one.fields() for one in failure.errors]
    check(parsed.spec)
    assert isinstance(render((), parsed.warnings, True), str)
    return parsed


def attempt(text, overrides) -> tuple[Parsed | None, InputErrors]:
    try:
        chosen = Overrides(**overrides)
        return parse(text, file="f.yaml", base="/w", overrides=chosen), InputErrors(())
    except InputErrors as error:
        return None, error


def check(spec: GroupSpec) -> None:
    """What every spec promises to those who read it."""
    assert spec.tasks
    labels = [str(node) for node in spec.nodes()]
    assert len(set(labels)) == len(labels)
    assert all(len(label) <= 63 and label[0].isalpha() for label in (*labels, spec.name))
    assert any(task.primary for task in spec.tasks)
    names = {task.name for task in spec.tasks}
    for task in spec.tasks:
        assert task.needs
        assert {name for name, _ in task.depends_on} <= names - {task.name}
        assert set(task.restart.along) <= names
        assert not {name for name, _ in task.envs} & {name for name, _ in task.secrets}
        assert task.grace >= 0
        assert task.termination_delay >= 0
        task.run.encode()


@given(st.binary(max_size=300))
def test_any_bytes(text):
    assert outcome(text) == outcome(text)


@given(st.text(max_size=300))
def test_any_text(text):
    assert outcome(text) == outcome(text)


@given(st.text(st.sampled_from(" \n\t-:{}[]&*!|>'\"%@`#,?ab0<.~$\r\\"), max_size=80))
def test_any_punctuation(text):
    assert outcome(text) == outcome(text)


@settings(max_examples=300)
@given(DOCUMENTS)
def test_any_values_below_known_keys(documents):
    text = yaml.safe_dump_all(documents, allow_unicode=True)
    assert outcome(text) == outcome(text)


@given(DOCUMENTS, st.lists(st.text(max_size=30), max_size=3), VALUES)
def test_any_flags(documents, sets, value):
    text = yaml.safe_dump_all(documents)
    outcome(text, sets=(*sets, f"a.{value}={value}"), infra=str(value or ""), name=str(value))


NAMES = st.text(string.ascii_letters, min_size=1, max_size=10)


@st.composite
def groups(draw) -> str:
    """Files that are right."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique_by=str.lower))
    tasks = []
    for position, name in enumerate(names):
        task: dict = {"name": name, "run": draw(st.text(string.printable, max_size=30)) + "x"}
        if draw(st.booleans()):
            task["num_nodes"] = draw(st.integers(1, 20))
        if position and draw(st.booleans()):
            task["depends_on"] = draw(st.lists(st.sampled_from(names[:position]), unique=True))
        if draw(st.booleans()):
            task["resources"] = {"cpus": draw(st.integers(1, 64)), "accelerators": "H100:8"}
        if draw(st.booleans()):
            task["envs"] = draw(st.dictionaries(NAMES, st.text(string.printable, max_size=9)))
        tasks.append(task)
    header = {"name": draw(NAMES), "execution": "parallel", "primary_tasks": [names[0]]}
    return yaml.safe_dump_all([header, *tasks], sort_keys=draw(st.booleans()))


@given(groups())
def test_right_files_are_read_as_written(text):
    parsed = outcome(text)
    assert isinstance(parsed, Parsed), parsed
    written = list(yaml.safe_load_all(text))
    assert parsed.spec.execution is Execution.PARALLEL
    for task, document in zip(parsed.spec.tasks, written[1:], strict=True):
        assert task.name == document["name"]
        assert task.run == document["run"]
        assert task.num_nodes == document.get("num_nodes", 1)
        assert dict(task.envs) == document.get("envs", {})
        assert [name for name, _ in task.depends_on] == document.get("depends_on", [])


@given(groups())
def test_comments_and_empty_documents_change_nothing(text):
    parsed = outcome(text)
    assert isinstance(parsed, Parsed), parsed
    other = outcome(f"# above\n---\n# alone\n---\n{text}\n---\n")
    assert isinstance(other, Parsed)
    assert other.spec == parsed.spec


@given(st.text(max_size=100))
def test_any_env_file(text):
    try:
        pairs = interpret_env_file(text)
    except InputErrors as error:
        pairs = tuple((str(one.place), one.text) for one in error.errors)
        assert pairs
    assert len(dict(pairs)) == len(pairs)


@given(st.integers(0, 10**8))
def test_durations_are_spelled_as_they_are_read(value):
    assert durations.seconds(durations.spelled(value)) == value


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_edits_are_a_distance(one, other):
    assert edits(one, other) == edits(other, one)
    assert (edits(one, other) == 0) == (one == other)
    assert edits(one, other) <= max(len(one), len(other))


@given(st.sampled_from(WORDS))
def test_a_known_word_is_its_own_nearest(word):
    assert nearest_word(word, WORDS) == word
