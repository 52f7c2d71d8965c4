"""Single rules, each with the smallest file that breaks it, or that keeps it."""

from __future__ import annotations

import pytest

from argosy.model.needs import Accelerator
from tests.spec.reading import errors, group, read, said, task, warned

G = "execution: parallel\n---\nname: a\nrun: x\n"

WRONG = {
    # names
    G + "num_nodes: 2\n---\nname: a-1\nbalance: 80\nrun: x\n": "7:7 balanced-name",
    # values
    'run: x\nenvs: {A: "\\0"}\n': "2:11 null-character",
    "run: x\nresources: {memory: 5i}\n": "2:21 wrong-value",
    "run: x\nresources: {infra: aws/a/b/c}\n": "2:20 wrong-value",
    "run: x\nresources: {infra: aws/}\n": "2:20 wrong-value",
    "run: x\nresources: {infra: [aws]}\n": "2:20 wrong-value",
    "run: x\nresources: {max_hourly_cost: true}\n": "2:30 wrong-value",
    "run: x\nresources: {image_id: {a: [b]}}\n": "2:23 wrong-value",
    "run: x\nresources: {accelerators: {H100: 2000}}\n": "2:34 wrong-value",
    "run: x\nnum_nodes: 1.5\n": "2:12 wrong-value",
    "run: x\nnum_nodes: true\n": "2:12 wrong-value",
    "run: x\ngrace: 11y\n": "2:8 wrong-value",
    "run: x\ngrace: 99999999w\n": "2:8 wrong-value",
    "run: x\n{{ key }}: 1\n": "2:2 template",
    'run: x\n"{{ key }}": 1\n': "2:1 template",
    '"{{ all }}"\n': "1:1 template",
    "{name}\n": "1:1 template",
    # YAML
    "run: !Ref x\n": "1:6 strange-tag",
    "run: !!int x\n": "1:6 strange-tag",
    "run: !!float 1.2.3\n": "1:6 strange-tag",
    "run: x\n<<: 5\n": "2:5 merge",
    "run: x\n? {a: b}\n: c\n": "2:3 template",
    "run: x\n? [a]\n: c\n": "2:3 strange-key",
    "a: &x 1\nrun: *y\n": "2:6 alias",
    "run: |\n  cat <<EOF\n  EOF\nname\n": "4:1 not-yaml",
    "run: 'it's'\n": "1:10 not-yaml",
    "run: a: b\n": "1:7 not-yaml",
    "run: [a\n": "2:1 not-yaml",
    "run: x\n- y\n": "2:1 not-yaml",
    "run: @a\n": "1:6 not-yaml",
    # mounts
    "run: x\nfile_mounts: {'s3://b': a}\n": "2:15 destination",
    "run: x\nfile_mounts: {/: a}\n": "2:15 destination",
    "run: x\nworkdir: {ref: main}\n": "2:10 workdir-url",
    "run: x\nvolumes: {/a: {}}\n": "2:15 volume-form",
    "run: x\nvolumes: {/a: {name: null}}\n": "2:15 volume-form",
    "run: x\nvolumes: {/a: {name: b/../c, size: 1Gi}}\n": "2:22 volume-name",
    "run: x\nvolumes: {/a: {name: b, host_path: /c}}\n": "2:15 volume-form",
    "run: x\nfile_mounts: {/a: s4://b}\n": "2:15 unknown-scheme",
    "run: x\nfile_mounts: {/a: {source: [b/d, c/d/]}}\n": "2:28 destination-twice",
    # resources
    "run: x\nresources: {gpus: T4, accelerators: L4}\n": "2:19 given-twice",
    "run: x\nresources: {priority: 1, priority_class: a}\n": "2:42 given-twice",
    "run: x\nresources: {any_of: [{infra: aws, zone: b}]}\n": "2:41 infra-and-cloud",
    "run: x\nresources: {job_recovery: a, any_of: [{job_recovery: b}]}\n": "2:54 recovery-differs",
    # restart and ready
    "run: x\nrestart: {on: [0]}\n": "2:15 exit-code",
    "run: x\nrestart: {on: [300]}\n": "2:15 exit-code",
    "run: x\nready: {tcp: 1}\nservice: {readiness_probe: /, ports: 2}\n": "2:8 given-twice",
    # between tasks
    G + "depends_on: [b, b]\n---\nname: b\nrun: x\n": "5:17 depends-twice",
    G + "depends_on: [{b: c}]\n": "5:13 wrong-value",
    "execution: [parallel]\n---\nname: a\nrun: x\n": "1:12 wrong-value",
    "envs: {A: }\nexecution: parallel\n---\nname: a\nrun: x\n": "1:8 missing-env",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_rule_is_kept(text):
    assert WRONG[text] in said(errors(text))


DOUBTFUL = {
    "run: x\nresources:\n  job_recovery: {max_restarts_on_errors: 1, recover_on_exit_codes: 3}\n":
        "3:68 recovery-codes",
    "run: x\nresources: {job_recovery: MAGIC}\n": "2:27 recovery-strategy",
    G + "restart: {scope: group, with: [b]}\n---\nname: b\nrun: x\n": "5:31 restart-with",
    f"primary_tasks: [a]\ntermination_delay: {{a: 5}}\n{G}---\nname: b\nrun: x\n":
        "2:21 delay-of-primary",
    "name: a\nrun: tail -f /dev/null\n": "2:6 never-ends",
    G + "restart: {scope: group, on: failure}\n": "5:18 no-budget",
}  # fmt: skip


@pytest.mark.parametrize("text", DOUBTFUL)
def test_doubtful_files_are_read_with_a_warning(text):
    assert DOUBTFUL[text] in warned(read(text))


def test_every_circle_is_named_once_and_who_hangs_on_it_is_not():
    waits = {"a": "b", "b": "a", "c": "d", "d": "e", "e": "c", "f": "a", "g": "f"}
    text = "execution: parallel\n" + "".join(
        f"---\nname: {name}\nrun: x\ndepends_on: [{other}]\n" for name, other in waits.items()
    )
    found = [error.text for error in errors(text)]
    assert found == [
        "these tasks wait for each other: a -> b -> a",
        "these tasks wait for each other: c -> d -> e -> c",
    ]


def test_labels_of_alternatives_are_joined():
    first, second = task(
        "run: x\nresources:\n  labels: {a: b, c: d}\n  any_of: [{labels: {c: e}}, {cpus: 1}]\n"
    ).needs
    assert (first.labels, second.labels) == (
        (("a", "b"), ("c", "e")), (("a", "b"), ("c", "d")),
    )  # fmt: skip


def test_maker_of_a_card_with_memory_is_understood():
    need = task("run: x\nresources: {accelerators: 'NVIDIA:80GB+:2'}\n").needs[0]
    assert need.accelerators == (Accelerator("", 2, 80.0),)


def test_unknown_cards_keep_their_spelling():
    need = task("run: x\nresources: {accelerators: 'tpu-v5e-8'}\n").needs[0]
    assert need.accelerators == (Accelerator("tpu-v5e-8"),)


def test_quotes_around_whole_numbers_do_not_matter():
    assert task("run: x\nnum_nodes: '3'\n").num_nodes == 3


def test_same_needs_after_overrides_are_one():
    text = "run: x\nresources: {any_of: [{infra: aws}, {infra: gcp}]}\n"
    assert len(task(text).needs) == 2
    assert len(task(text, infra="local").needs) == 1


def test_json_is_yaml():
    assert task('{"name": "a", "run": "x", "num_nodes": 2}').num_nodes == 2


def test_name_of_a_group_is_that_of_the_flag_header_task_or_file():
    assert group("run: x").name == "group"
    assert group("run: x\nname: A.b").name == "a-b"
    assert group(f"name: H\n{G}").name == "h"
    assert group(f"name: H\n{G}", name="F").name == "f"


def test_all_variables_without_value_are_named_with_one_command_line():
    text = "execution: parallel\nenvs: {C: }\n---\nname: a\nenvs: {A: , B: }\nrun: x\n"
    found = errors(text)
    assert [error.text.split("`")[1] for error in found] == ["C", "A", "B"]
    assert {error.hints[0].split("`")[1] for error in found} == {
        "--env C=... --env A=... --env B=..."
    }


def test_place_of_a_task_replaces_the_headers_place_as_a_whole():
    text = (
        "execution: parallel\nresources: {infra: aws/us-east-1, cpus: 2, gpus: L4}\n"
        "---\nname: a\nrun: x\nresources: {cloud: gcp, accelerators: T4}\n"
        "---\nname: b\nrun: x\nresources: {any_of: [{infra: k8s}, {cpus: 4}]}\n"
    )
    first, second = group(text).tasks
    assert (first.needs[0].infra, first.needs[0].cpus) == ("gcp", 2.0)
    assert first.needs[0].accelerators == (Accelerator("T4"),)
    assert [need.infra for need in second.needs] == ["kubernetes", "aws/us-east-1"]


def test_lost_hosts_are_replaced_with_every_list_but_the_empty_one():
    assert task("run: x\nrestart: {on: [failure]}\n").restart.on_lost
    assert task("run: x\nrestart: {on: [3]}\n").restart.on_lost
    assert not task("run: x\nrestart: {on: []}\n").restart.on_lost


def test_longest_name_is_53_characters():
    assert len(group(f"name: {'a' * 53}\nrun: x\n").name) == 53
    assert said(errors(f"name: {'a' * 54}\nrun: x\n")) == ["1:7 name-too-long"]
    assert said(errors(f"name: {'a' * 54}\n{G}")) == ["1:7 name-too-long"]
    assert said(errors(f"name: 1{'a' * 52}\n{G}")) == ["1:7 name-too-long"]  # `g-` is put before


def test_defaults_of_a_compatible_probe_are_those_of_existing_files():
    ready = task("run: x\nservice: {ports: 80, readiness_probe: {path: /}}\n").ready
    assert (ready.timeout, ready.start_period, ready.failures) == (15.0, 1200.0, 3)


def test_one_card_in_a_list_has_no_order():
    assert not task("run: x\nresources: {accelerators: [T4]}\n").needs[0].accelerators_ordered


def test_directives_and_comments_belong_to_the_document_after_them():
    """Each document is looked at by itself once one is wrong; a directive alone would be wrong."""
    bad = "---\nname: a\n---\nrun: 'x"
    for before in ("%YAML 1.1\n", "# a\n\n%YAML 1.1\n", "%TAG !e! tag:e,2000:\n"):
        assert len(errors(before + bad)) == 1
    assert len(errors("run: @x\n...\n%YAML 1.1\n" + bad)) == 2


def test_a_bucket_that_is_not_made_of_a_download_is_said():
    said = task("run: x\nfile_mounts: {/a: {name: b, source: 'https://c/d'}}\n").not_carried_out
    assert "no bucket `b` is made" in said[0]
    assert task("run: x\nfile_mounts: {/a: 'https://c/d'}\n").not_carried_out == ()


def test_a_key_that_is_given_twice_hides_no_other_error():
    found = errors("name: a\nenvs: {A: 1, A: 2}\nnum_nodes: many\nrunn: x\nrun: x\n")
    assert said(found) == ["2:14 duplicate-key", "3:12 wrong-value", "4:1 unknown-key"]


def test_a_list_of_sources_cannot_climb_out_of_its_destination():
    text = "run: x\nfile_mounts: {d: {source: [.., ./a/..], mode: COPY}}\n"
    assert [one.destination for one in task(text).file_mounts] == ["d/work", "d/code"]
