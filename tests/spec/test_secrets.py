"""Secrets are shown nowhere: not in errors, not in warnings, not in what a spec prints."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from argosy.errors import InputErrors
from argosy.spec import Overrides, render
from tests.spec.reading import errors, read

WRONG = [
    "secrets:\n  A: [hunter2]\n",
    "secrets: hunter2\n",
    "secrets: {A: x, A: hunter2}\n",
    "secrets:\n  A: x\n  A: hunter2\n",
    "secrets:\n- hunter2!\n",
    "secrets:\n  A: hunter2: x\n",
    'secrets:\n  A: "hunter2\n',
    "secrets:\n\n  A: |\n    hunter2\n  B: {hunter2: [\n",
    "{run: x, secrets: {A: [hunter2]}}\n",
    "name: a\nsecrets:\n  1A: hunter2\n",
    "secrets:\n\tA: hunter2\n",
    "secrets:\n  A: hunter2\x01\n",
]


@pytest.mark.parametrize("text", WRONG)
def test_errors_show_no_secret(text):
    found = errors(text if text.startswith("{") else f"run: x\n{text}")
    assert "hunter2" not in render(found, (), False)
    assert "hunter2" not in str([error.fields() for error in found])


TREES = st.recursive(
    st.sampled_from(["hunter2", "$hunter2", "{{hunter2}}", "\0hunter2", 5, None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("AB1"), inner),
    max_leaves=5,
)


@given(TREES, st.booleans(), st.sampled_from(["run: x\n", "run: [\n", "name: a b\nrun: x\n"]))
def test_no_value_below_secrets_is_ever_shown(tree, flow, rest):
    text = yaml.safe_dump({"secrets": tree}, default_flow_style=flow, width=20) + rest
    try:
        shown = repr(read(text, environ=(("hunter2", "x"),)))
    except InputErrors as error:
        shown = render(error, (), False).replace("`hunter2`", "")  # `- NAME`: a name
    assert "hunter2" not in shown


def test_lines_below_the_secrets_are_shown_again():
    found = errors("secrets:\n  A: x\nrun: x\nnum_nodes: many\n")
    assert found[0].place.source == "num_nodes: many"


def test_specs_and_overrides_print_no_secret():
    parsed = read("run: x\nenvs: {A: y}\nsecrets: {A: hunter2}\n")
    assert parsed.warnings
    assert "hunter2" not in repr(parsed)
    assert "hunter2" not in repr(
        Overrides(secrets=(("A", "hunter2"),), environ=(("B", "hunter2"),))
    )


KEY = "hunter2-" * 5  # longer than what a message quotes of it
PUT_IN = [
    "file_mounts:\n  ${KEY}: ./a\n  ${KEY}/: ./b\n",
    "file_mounts:\n  s3://${KEY}${KEY}: ./a\n",
    "workdir: s3://x${KEY}${KEY}\n",
    "volumes:\n  ../${KEY}${KEY}: vol\n",
    "service: {readiness_probe: {path: /, initial_delay_seconds: '${KEY}'}}\n",
]


@pytest.mark.parametrize("text", PUT_IN)
def test_a_secret_that_was_put_into_a_path_is_in_no_error(text):
    found = errors(f"run: x\n{text}secrets:\n  KEY: {KEY}\n")
    shown = render(found, (), False) + str([error.fields() for error in found])
    assert "hunter2" not in shown
    assert "***" in shown


def test_what_is_not_carried_out_shows_no_secret():
    parsed = read(f"run: x\nfile_mounts: {{/a: 's3://b/$KEY'}}\nsecrets: {{KEY: {KEY}}}\n")
    assert parsed.spec.tasks[0].file_mounts[0].source == f"s3://b/{KEY}"
    (sentence,) = parsed.spec.tasks[0].not_carried_out
    assert "s3://b/***" in sentence
    assert "hunter2" not in sentence
