"""What the command line changes about a file."""

from __future__ import annotations

import pytest

from argosy.errors import InputError, InputErrors
from argosy.model.needs import Accelerator
from argosy.spec import interpret_env_file, interpret_pairs
from tests.spec.reading import errors, group, said, task

GROUP = """\
name: g
execution: parallel
---
name: trainer
num_nodes: 2
resources: {infra: aws/us-east-1, instance_type: p5, accelerators: H100:8}
envs: {A: 1}
run: x
---
name: reward
resources:
  any_of: [{infra: gcp}, {infra: k8s}]
run: x
"""


def test_infra_overrides_every_pin_and_machine_type():
    spec = group(GROUP, infra="local")
    assert [[need.infra for need in t.needs] for t in spec.tasks] == [["local"], ["local"]]
    assert spec.tasks[0].needs[0].instance_type is None
    assert spec.tasks[0].needs[0].accelerators == (Accelerator("H100", 8),)
    assert group(GROUP, infra="k8s/lab").tasks[0].needs[0].infra == "kubernetes/lab"
    assert group(GROUP, infra="aws").tasks[0].needs[0].instance_type == "p5"


def test_no_accelerators_takes_all_cards_away():
    spec = group(GROUP, no_accelerators=True)
    assert all(need.accelerators == () for t in spec.tasks for need in t.needs)


def test_name_and_network():
    spec = group(GROUP, name="Try_2", network="host")
    assert (spec.name, spec.network) == ("try-2", "host")
    assert said(errors(GROUP, name="a b", network="fast")) == ["0:0 network", "0:0 name"]


def test_unknown_infra_of_the_flag_names_the_nearest():
    (error,) = errors(GROUP, infra="locla")
    assert (str(error.place), error.hints) == ("--infra locla", ("did you mean `local`?",))


def test_variables_go_to_every_task_and_win():
    spec = group(GROUP, envs=(("A", "2"), ("B", "3")), secrets=(("S", "x"),))
    assert [dict(t.envs) for t in spec.tasks] == [{"A": "2", "B": "3"}] * 2
    assert [t.secrets for t in spec.tasks] == [(("S", "x"),)] * 2


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("trainer.resources.cpus=1", (1.0, 2, None)),
        ("trainer.num_nodes=3", (None, 3, None)),
        ("*.resources.cpus=1", (1.0, 2, 1.0)),
        ("reward.resources.cpus=4+", (None, 2, 4.0)),
    ],
)
def test_set_changes_one_key(flag, value):
    first, second = group(GROUP, sets=(flag,)).tasks
    assert (first.needs[0].cpus, first.num_nodes, second.needs[0].cpus) == value


def test_set_makes_maps_reads_yaml_and_removes():
    spec = group(
        GROUP,
        sets=("trainer.restart.on=[failure]", "trainer.restart.max=2", "group.priority=5",
              "trainer.resources.accelerators=null", "trainer.run=a: b"),
    )  # fmt: skip
    trainer = spec.tasks[0]
    assert (trainer.restart.on_failure, trainer.restart.max, spec.priority) == (True, 2, 5)
    assert (trainer.needs[0].accelerators, trainer.run) == ((), "a: b")


def test_set_of_a_single_document_needs_no_task():
    assert task("run: x", sets=("num_nodes=2",)).num_nodes == 2
    assert task("run: x", sets=("task.num_nodes=3",)).num_nodes == 3
    assert task("name: a\nrun: x", sets=("a.num_nodes=4",)).num_nodes == 4


def test_set_that_is_wrong_says_which_flag():
    found = errors(
        GROUP, sets=("trianer.num_nodes=1", "trainer", "trainer.num_nodes=x", "trainer.cpus=1")
    )
    assert [(str(e.place), e.code) for e in found] == [
        ("--set trianer.num_nodes=1", "spec/bad-set"),
        ("--set trainer", "spec/bad-set"),
        ("--set trainer.num_nodes=x", "spec/wrong-value"),
        ("--set trainer.cpus=1", "spec/misplaced-key"),
    ]
    assert found[0].hints == ("did you mean `trainer`?",)


def test_pairs_take_bare_names_from_the_environment():
    got = interpret_pairs(["A=1", "B", "C=a=b", "D="], {"B": "two"}, flag="--env")
    assert got == (("A", "1"), ("B", "two"), ("C", "a=b"), ("D", ""))


def test_pairs_that_are_wrong_are_all_named_and_show_no_secret():
    with pytest.raises(InputErrors) as caught:
        interpret_pairs(["1A=hunter2", "MISSING"], {}, flag="--secret")
    first, second = caught.value.errors
    assert (first.code, second.code) == ("spec/env-name", "spec/env-unset")
    assert "hunter2" not in str(first.fields())
    assert "export MISSING" in second.hints[0]


ENV_FILE = """\
# a comment

A=1
export B=two words
C="with \\"quotes\\" and\\nlines"   # why
D='it is $literal'
E=
F=value # comment
G=a#b
A=2
"""


def test_env_file_is_read():
    assert dict(interpret_env_file(ENV_FILE)) == {
        "A": "2", "B": "two words", "C": 'with "quotes" and\nlines', "D": "it is $literal",
        "E": "", "F": "value", "G": "a#b",
    }  # fmt: skip


def test_env_file_names_every_wrong_line_without_showing_it():
    with pytest.raises(InputErrors) as caught:
        interpret_env_file('A=1\nhunter2\nB="open\n1C=x\n', file=".env")
    places = [str(error.place) for error in caught.value.errors]
    assert places == [".env:2:1", ".env:3:1", ".env:4:1"]
    assert "hunter2" not in str(caught.value.fields())


def test_env_file_has_a_limit():
    with pytest.raises(InputError):
        interpret_env_file("A=1\n" * 300_000)
