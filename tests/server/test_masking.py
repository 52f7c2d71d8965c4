"""What the API shows of a submitted file holds no secret."""

from __future__ import annotations

import pytest

from argosy.errors import InputError, InputErrors
from argosy.model import codec
from argosy.model.codec import MASK
from argosy.model.spec import Workdir
from argosy.server.masking import masked, masked_data, masked_errors
from argosy.testing.builders import a_spec, a_task

FILE = """\
# a comment
secrets: {TOKEN: hunter2, "SHORT": '1'}
---
name: trainer
num_nodes: 1
secrets:
  KEY: |
    line one
    line two
  OTHER: "quoted: value"   # kept
  EMPTY:
envs: {URL: "https://x?t=hunter2"}
run: echo 1
"""


def test_values_of_secrets_are_masked_wherever_they_stand() -> None:
    spec = a_spec(a_task("trainer", secrets=(("TOKEN", "hunter2"), ("SHORT", "1"))))
    shown = masked(FILE, spec)
    for secret in ("hunter2", "line one", "quoted: value", "'1'"):
        assert secret not in shown
    assert "num_nodes: 1" in shown
    assert "# kept" in shown
    assert "run: echo 1" in shown


def test_a_byte_order_mark_moves_no_mask() -> None:
    assert masked("\ufeffsecrets: {T: abc}", a_spec(a_task("a"))) == f"secrets: {{T: '{MASK}'}}"


def test_a_secret_that_was_put_into_a_path_is_masked_there() -> None:
    spec = a_spec(
        a_task("a", secrets=(("T", "sosecret"),), workdir=Workdir(url="https://sosecret@h"))
    )
    shown = masked_data(codec.encode(spec), spec)
    assert shown["tasks"][0]["workdir"]["url"] == f"https://{MASK}@h"
    assert shown["name"] == spec.name


@pytest.mark.parametrize("text", ["", "a: [", "secrets: 3", "secrets: [A, B]", "- x"])
def test_any_text_is_taken(text: str) -> None:
    assert masked(text, a_spec()) == text


def test_an_error_about_a_path_shows_no_secret() -> None:
    spec = a_spec(a_task("a", secrets=(("T", "sosecret"),)))
    with pytest.raises(InputError) as caught, masked_errors(spec):
        raise InputError("/data/sosecret is not there", code="files/missing", hint="ls /sosecret")
    assert str(caught.value) == caught.value.text == f"/data/{MASK} is not there"
    assert caught.value.hints == (f"ls /{MASK}",)
    assert caught.value.code == "files/missing"


def test_each_of_several_errors_shows_no_secret() -> None:
    spec = a_spec(a_task("a", secrets=(("T", "sosecret"),)))
    with pytest.raises(InputErrors) as caught, masked_errors(spec):
        raise InputErrors((InputError("no /a/sosecret"), InputError("no /b", hint="ls /sosecret")))
    assert "sosecret" not in str(caught.value.fields())
