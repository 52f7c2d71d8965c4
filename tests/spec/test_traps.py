"""Traps seen in public files: each is a file in `traps/`, and either its meaning or its errors."""

from __future__ import annotations

import pytest
import yaml

from argosy.model.needs import Accelerator
from argosy.model.spec import (
    EndsWith,
    Execution,
    FileMount,
    Probe,
    Ready,
    Restart,
    Scope,
    Workdir,
)
from tests.spec.reading import TRAPS, errors, said, trap, warned

# File, errors as `line:column code`, and a piece of the hint of the first.
WRONG = {
    "accelerator-wrong": (
        ["3:17 wrong-value", "8:24 wrong-value", "13:17 wrong-value"], "`H100:8`"),
    "alias-bomb": (["6:11 alias-expansion"], "write the values out"),
    "anchors": (["13:12 alias"], "repeat the anchor in this document"),
    "any-of-and-ordered": (["4:12 any-of-and-ordered"], "keep `any_of`"),
    "binary": (["0:0 binary"], "give the YAML file"),
    "blank": (["0:0 empty"], "argosy init"),
    "cycle": (["5:14 cycle", "17:14 cycle"], "remove one"),
    "depends-wrong": (["6:3 unknown-task", "7:3 never-healthy", "8:11 wrong-value"], "`rollout`?"),
    "duplicate-keys": (["5:3 duplicate-key", "7:1 duplicate-key"], "keep one"),
    "empty": (["0:0 empty"], "run: echo hello"),
    "env-null": (["6:3 missing-env", "7:3 missing-env"],
                 "--env WANDB_PROJECT=... --env HF_USER=..."),
    "execution-forgotten": (["2:1 no-execution"], "add `execution: parallel`"),
    "execution-in-task": (["2:1 misplaced-key"], "header"),
    "execution-misspelled": (["2:12 wrong-value"], "did you mean `parallel`?"),
    "gzip": (["0:0 binary"], "give the YAML file"),
    "header-alone": (["1:1 no-tasks"], "after a line `---`"),
    "heredoc": (["5:1 heredoc"], "indent the body and its `EOF`"),
    "infra-and-cloud": (["4:11 infra-and-cloud"], "remove `region`"),
    "infra-unknown": (["2:20 wrong-value"], "did you mean `kubernetes/prod`?"),
    "jinja": (["1:8 template", "3:17 template", "3:18 template"], "render the template first"),
    "jinja-quoted": (["1:7 template", "3:17 template", "4:12 template"], "render the template"),
    "jinja-statement": (["2:1 template"], "render the template first"),
    "latin1": (["2:14 encoding"], "UTF-8"),
    "memory-wrong": (["3:11 wrong-value", "4:9 wrong-value", "5:14 wrong-value"], "`16GB`"),
    "mount-null-name": (["4:5 mount-source"], "name: BUCKET"),
    "mount-climbs": (["3:3 destination", "4:3 destination", "5:3 destination"],
                     "a path below the working directory, `~/x` or an absolute one"),
    "mount-twice": (["4:3 destination-twice"], "destination of its own"),
    "mount-variable": (["3:10 variable", "5:10 variable"], "add `HOME` to `envs`"),
    "names-alike": (["7:7 duplicate-task"], "the first is in line 4"),
    "names-wrong": (["1:7 name", "4:7 name", "7:7 name-too-long", "10:1 no-name", "12:7 name"],
                    "`name: my-group` would do"),
    "null-character": (["2:6 null-character"], "remove it"),
    "num-nodes-in-resources": (["4:3 misplaced-key"], "one level up"),
    "only-comments": (["0:0 empty"], "run: echo hello"),
    "other-versions": (
        ["3:3 other-version", "7:1 other-version", "8:1 other-version", "10:3 other-version"],
        "older versions"),
    "pool": (["3:3 pool"], "leave `pool` out"),
    "ports-beside-resources": (["2:1 misplaced-key", "3:1 misplaced-key"], "below `resources`"),
    "ports-wrong": (["3:11 wrong-value", "3:18 wrong-value", "3:25 wrong-value",
                     "3:28 wrong-value"], "1000-2000"),
    "primary-unknown": (["3:16 unknown-task", "4:21 unknown-task"], "did you mean `trainer`?"),
    "ready-wrong": (["5:8 ready-port", "9:8 ready-kind", "13:14 regular-expression",
                     "17:8 ready-kind"], "port: 8000"),
    "region-list": (["4:11 wrong-value"], "any_of: [{infra: CLOUD/us-east-1}"),
    "restart-wrong": (
        ["6:8 restart-max", "11:17 wrong-value", "12:9 restart-with", "12:9 unknown-task",
         "13:12 wrong-value", "17:10 given-twice"], "on: [failure, lost]"),
    "secrets-empty-and-null": (["4:3 missing-secret"], "--secret HF_TOKEN"),
    "secrets-list": (["3:5 missing-secret", "4:5 missing-secret"],
                     "--secret HF_TOKEN --secret WANDB_API_KEY"),
    "secrets-twice": (["5:1 duplicate-key"], "keep one"),
    "shell-line": (["1:1 stray-text"], "put `#` before it"),
    "str-format": (["1:7 template", "2:12 template"], "render the template first"),
    "stray-token": (["4:1 not-yaml"], "put `#` before it"),
    "tab": (["3:1 tab"], "replace tabs by spaces"),
    "time-wrong": (["5:12 wrong-value", "6:6 wrong-value"], "`5m`"),
    "utf16": (["1:1 encoding"], "iconv -f UTF-16"),
    "variables-in-resources": (
        ["2:12 variable", "5:10 variable", "6:17 variable", "7:9 variable", "8:11 variable",
         "9:18 variable", "10:10 variable", "11:13 variable"], "--set TASK.num_nodes=VALUE"),
}  # fmt: skip

# Files that mean something, with their warnings; each has a test of its meaning below.
RIGHT = {
    "accelerator-braces": ["3:17 accelerator-form"],
    "accelerator-forms": ["6:17 accelerator-form"],
    "accelerator-list-of-maps": [],
    "accelerator-without-space": ["3:17 accelerator-form"],
    "anchors-inside": [],
    "any-of": [],
    "bom": [],
    "carriage-return": [],
    "chain-serial": [],
    "chain-with-name": [],
    "chain-without-header": [],
    "comments-before-header": [],
    "crlf": [],
    "docker-images": [],
    "dumped": [],
    "env-values": ["7:8 boolean-text"],
    "git-workdir": [],
    "header-unknown-key": ["3:1 unknown-key"],
    "heredoc-inside": [],
    "indent-four": [],
    "job-recovery": [],
    "legacy-placement": ["3:12 legacy-placement"],
    "list-not-indented": [],
    "memory-units": [],
    "mount-buckets": [],
    "mount-local-source": [],
    "mounts": [],
    "names-with-capitals": [],
    "no-final-newline": [],
    "no-run": ["7:1 no-run"],
    "own-ray": [],
    "pinned-interconnection": [],
    "ports": [],
    "secret-and-env": ["5:3 env-and-secret"],
    "self-referential": ["3:3 literal-variable", "4:3 literal-variable"],
    "service-in-task": [],
    "shebang": [],
    "sleep-infinity": ["7:6 never-ends"],
    "sleep-infinity-head": [],
    "stderr-appended": [],
    "truncated-stderr": ["2:6 truncated-log"],
    "upper-case-time": [],
    "volumes": [],
}


def test_every_trap_is_tested():
    assert {path.stem for path in TRAPS.glob("*.yaml")} == set(WRONG) | set(RIGHT)


@pytest.mark.parametrize("name", WRONG)
def test_trap_is_an_error_with_place_and_hint(name):
    places, hint = WRONG[name]
    found = errors((TRAPS / f"{name}.yaml").read_bytes())
    assert said(found) == places
    assert hint in found[0].hints[0]
    assert all(error.hints and error.exit_code == 2 for error in found)


@pytest.mark.parametrize("name", RIGHT)
def test_trap_is_read_with_its_warnings(name):
    parsed = trap(name)
    assert warned(parsed) == RIGHT[name]
    assert all(warning.hint for warning in parsed.warnings)


def test_reading_without_libyaml_is_the_same(monkeypatch):
    monkeypatch.delattr(yaml, "CSafeLoader")
    for name, (places, _) in WRONG.items():
        assert said(errors((TRAPS / f"{name}.yaml").read_bytes())) == places
    for name, warnings in RIGHT.items():
        assert warned(trap(name)) == warnings


def tasks_of(name: str, **overrides):
    return {task.name: task for task in trap(name, **overrides).spec.tasks}


def cards_of(name: str) -> dict[str, tuple[Accelerator, ...]]:
    return {key: task.needs[0].accelerators for key, task in tasks_of(name).items()}


def test_empty_documents_and_comments_are_skipped():
    spec = trap("comments-before-header").spec
    assert (spec.name, spec.execution) == ("rl", Execution.PARALLEL)
    assert [task.name for task in spec.tasks] == ["a", "b"]


def test_values_of_variables_become_the_text_that_existing_files_get():
    assert dict(tasks_of("env-values")["envs"].envs) == {
        "INT": "42", "FLOAT": "1.5", "SMALL": "1e-4", "TRUE_": "True", "YES": "True",
        "OCTAL": "8", "EMPTY": "", "TEXT": "it is", "DATE": "2024-05-01", "TIME": "750",
        "DOLLAR": "$HOME/x",
    }  # fmt: skip


def test_null_variables_take_the_value_of_the_command_line():
    tasks = tasks_of("env-null", envs=(("WANDB_PROJECT", "p"), ("HF_USER", "ada")))
    assert dict(tasks["a"].envs) == {"WANDB_PROJECT": "p", "HF_USER": "ada"}
    assert dict(tasks["b"].envs)["WANDB_PROJECT"] == "p"


def test_null_and_listed_secrets_come_from_the_environment_or_the_command_line():
    first = tasks_of("secrets-empty-and-null", environ=(("HF_TOKEN", "t"),))["s"]
    assert dict(first.secrets) == {"EMPTY": "", "HF_TOKEN": "t"}
    second = tasks_of(
        "secrets-list", environ=(("HF_TOKEN", "t"),), secrets=(("WANDB_API_KEY", "w"),)
    )["s"]
    assert dict(second.secrets) == {"HF_TOKEN": "t", "WANDB_API_KEY": "w"}
    assert "t'" not in repr(second)


def test_secret_wins_over_the_variable_of_its_name():
    task = tasks_of("secret-and-env")["s"]
    assert task.envs == ()
    assert task.secrets == (("HF_TOKEN", "from-secrets"),)


def test_self_referential_values_stay_literal():
    envs = dict(tasks_of("self-referential")["s"].envs)
    assert envs == {"WANDB_API_KEY": "${WANDB_API_KEY}", "HF_TOKEN": "$HF_TOKEN"}


def test_accelerators_in_every_form():
    assert cards_of("accelerator-forms") == {
        "set": (Accelerator("A100"), Accelerator("V100")),
        "yaml-set": (Accelerator("A100"), Accelerator("V100")),
        "list": (Accelerator("H100", 8), Accelerator("A100", 8)),
        "lower": (Accelerator("A10G"),),
        "null-count": (Accelerator("H100"),),
        "memory": (Accelerator("", 2, 80.0),),
        "none": (),
        "gpus": (Accelerator("L4", 2),),
    }
    ordered = {name: task.needs[0].accelerators_ordered
               for name, task in tasks_of("accelerator-forms").items()}  # fmt: skip
    assert [name for name, yes in ordered.items() if yes] == ["list"]


def test_accelerators_that_yaml_takes_apart_are_read_as_meant():
    assert cards_of("accelerator-without-space") == {"a": (Accelerator("H100", 8),)}
    assert cards_of("accelerator-braces") == {"a": (Accelerator("L4"), Accelerator("A10G"))}
    assert cards_of("accelerator-list-of-maps") == {"a": (Accelerator("T4"), Accelerator("L4"))}


def test_four_spaces_of_indentation_are_as_good_as_two():
    task = tasks_of("indent-four")["wide"]
    assert [need.infra for need in task.needs] == ["aws/us-east-1", "gcp"]
    assert task.needs[0].memory_gib == 16.0
    assert task.run.startswith("if true; then\n    echo hi\n")


def test_memory_in_every_unit_is_gib():
    needs = {name: task.needs[0] for name, task in tasks_of("memory-units").items()}
    sizes = {name: (need.memory_gib, need.memory_exact) for name, need in needs.items()}
    assert sizes == {
        "plain": (32.0, True), "plus": (32.0, False), "gi": (16.0, True),
        "mb": (1500 / 1024, True), "gb": (2.0, True), "tb": (1024.0, True),
    }  # fmt: skip
    assert (needs["gb"].cpus, needs["gb"].disk_gib) == (0.5, 20.0)


def test_ports_in_every_form():
    ports = {name: task.needs[0].ports for name, task in tasks_of("ports").items()}
    assert ports == {
        "scalar": ("8080",), "text": ("8080",), "range": ("1000-2000",),
        "list": ("8080", "9000-9010"),
    }  # fmt: skip


def test_single_files_and_trailing_slashes_are_mounted():
    task = tasks_of("mounts")["m"]
    assert task.workdir == Workdir(path="/work/code")
    assert task.file_mounts == (
        FileMount("~/model.bin", "/work/code/models/model.bin"),
        FileMount("/data", "/work/data"),
        FileMount("/etc/app.conf", "/home/ada/app.conf"),
        FileMount("/remote.txt", "https://example.com/remote.txt"),
    )
    assert task.not_carried_out == ()


def test_buckets_are_checked_and_said_not_to_be_carried_out():
    task = tasks_of("mount-buckets")["m"]
    assert task.file_mounts == (
        FileMount("/models/llama-7b", "s3://weights/llama-7b", store="s3", mode="COPY"),
        FileMount("/ckpt", "", "my-weights", "s3", "MOUNT"),
    )
    assert len(task.not_carried_out) == 2
    assert "s3://weights/llama-7b" in task.not_carried_out[0]


def test_a_local_source_in_a_map_is_a_copy_and_no_bucket():
    task = tasks_of("mount-local-source")["m"]
    assert task.file_mounts == (
        FileMount("/data", "/work/code/data"),
        FileMount("/cache", "/work/code/cache"),
        FileMount("/named", "/work/code/named"),
        FileMount("/several/a.txt", "/work/code/a.txt"),
        FileMount("/several/parts", "/work/code/parts"),
        FileMount("/web", "https://example.com/web.txt"),
    )
    cache, named = task.not_carried_out
    assert cache == (
        "`/cache` is a copy of /work/code/cache: what a node writes there stays on the node"
    )
    assert named == (
        "`/named` is a copy of /work/code/named: no bucket `mine` is made of it, and what a node"
        " writes there stays on the node"
    )


def test_images_with_and_without_docker():
    images = {name: task.needs[0].image for name, task in tasks_of("docker-images").items()}
    assert images == {
        "with": "docker:vllm/vllm-openai:latest",
        "without": "ubuntu:24.04",
        "regions": "us-east-1=ami-1,us-west-2=ami-2",
    }


def test_upper_case_units_of_time():
    assert tasks_of("upper-case-time")["b"].termination_delay == 300.0


def test_names_keep_their_spelling_and_get_a_dns_form():
    spec = trap("names-with-capitals").spec
    assert spec.name == "my-group"
    assert [spec.host_name(node) for node in spec.nodes()] == [
        "ppo-trainer-0.my-group", "ppo-trainer-1.my-group", "reward-server-0.my-group",
    ]  # fmt: skip
    assert [task.primary for task in spec.tasks] == [True, False]


def test_service_inside_a_task_is_a_probe():
    tasks = tasks_of("service-in-task")
    assert tasks["server"].ready == Ready(
        Probe.HTTP, 8080, "/v1/models", interval=10.0, timeout=5.0, failures=3, start_period=60.0
    )
    assert "num_nodes" in tasks["server"].not_carried_out[0]
    assert tasks["short"].ready == Ready(
        Probe.HTTP, 9000, "/health", timeout=15.0, start_period=1200.0
    )
    assert tasks["post"].ready is not None
    assert tasks["post"].ready.kind is Probe.TCP
    assert "post_data" in tasks["post"].not_carried_out[0]
    assert tasks["no-port"].ready is None
    assert "service.ports" in tasks["no-port"].not_carried_out[0]


def test_tasks_may_be_without_run():
    tasks = tasks_of("no-run")
    assert (tasks["a"].setup, tasks["a"].run) == ("pip install x", "")


def test_ranks_that_sleep_for_ever_need_ends_with_head():
    warning = trap("sleep-infinity").warnings[0]
    assert "ends_with: head" in warning.hint
    assert tasks_of("sleep-infinity-head")["trainer"].ends_with is EndsWith.HEAD


def test_programs_that_start_their_own_ray_are_left_alone():
    task = tasks_of("own-ray")["verl"]
    assert "--port 6379" in task.run
    assert task.restart == Restart(scope=Scope.TASK)


def test_line_endings_and_a_byte_order_mark_change_nothing():
    assert tasks_of("crlf")["a"].run == "echo one\necho two\n"
    assert tasks_of("crlf")["a"].envs == (("A", "b"),)
    assert tasks_of("bom")["a"].run == "x"
    assert tasks_of("no-final-newline")["a"].run == "echo hi"
    assert tasks_of("carriage-return")["bar"].run.count("\r") == 0  # it is `\r` in the text
    assert tasks_of("heredoc-inside")["a"].run.splitlines()[1] == "import os"


def test_lists_need_no_indentation():
    spec = trap("list-not-indented").spec
    assert [need.infra for need in spec.tasks[0].needs] == ["aws", "gcp"]


def test_several_documents_without_a_header_are_a_pipeline():
    spec = trap("chain-without-header").spec
    assert (spec.name, spec.execution) == ("group", Execution.SERIAL)
    assert [task.name for task in spec.tasks] == ["prepare", "train"]
    named = trap("chain-with-name").spec
    assert [task.name for task in named.tasks] == ["prepare", "pipeline-1"]
    dotted = trap("chain-serial").spec
    assert (dotted.name, dotted.tasks[0].name) == ("pipeline", "llama-3.1")
    assert str(dotted.nodes()[0]) == "llama-3-1-0"


def test_unknown_header_key_is_ignored_with_the_nearest():
    parsed = trap("header-unknown-key")
    assert parsed.spec.tasks[0].termination_delay == 0.0
    assert parsed.warnings[0].hint == "did you mean `termination_delay`?"


def test_wish_for_names_is_kept_for_the_planner():
    spec = trap("pinned-interconnection").spec
    assert spec.inter_connection is True
    assert [task.needs[0].infra for task in spec.tasks] == ["aws", "gcp"]


def test_dumped_files_are_read():
    task = tasks_of("dumped")["a"]
    assert (task.needs[0].cpus, task.needs[0].disk_gib) == (4.0, 256.0)
    assert task.restart == Restart()


def test_job_recovery_is_a_restart():
    restarts = {name: task.restart for name, task in tasks_of("job-recovery").items()}
    assert restarts == {
        "name": Restart(),
        "errors": Restart(on_failure=True, max=3),
        "codes": Restart(on_codes=(33, 34)),
        "none": Restart(on_lost=False),
    }


def test_anchors_and_merge_keys_work_inside_a_document():
    task = tasks_of("anchors-inside")["a"]
    assert dict(task.envs) == {"BASE": "hello", "COPY": "hello"}
    assert [(need.infra, need.labels) for need in task.needs] == [
        ("aws", (("a", "b"),)), ("gcp", (("a", "b"),)),
    ]  # fmt: skip


def test_alternatives_are_put_over_what_stands_beside_them():
    first, second = tasks_of("any-of")["a"].needs
    assert (first.infra, first.use_spot, len(first.accelerators)) == ("aws/us-east-1", True, 2)
    assert (second.infra, second.cpus) == ("gcp/us-central1", 4.0)
    assert second.accelerators == (Accelerator("L4"),)


def test_git_and_volumes_are_taken():
    task = tasks_of("git-workdir")["a"]
    assert task.workdir == Workdir(url="https://github.com/example/code", ref="main")
    assert task.not_carried_out == ()
    task = tasks_of("volumes")["a"]
    assert [(v.name, v.size_gib, v.host_path, v.read_only) for v in task.volumes] == [
        ("my-volume", 0.0, "", False), ("", 100.0, "", False), ("", 0.0, "/mnt/x", True),
    ]  # fmt: skip
    assert task.not_carried_out == ()


def test_placement_is_ignored():
    spec = trap("legacy-placement").spec
    assert (spec.inter_connection, spec.tasks[0].needs[0].infra) == (None, None)


def test_standard_streams_are_written_as_the_warning_says():
    hint = trap("truncated-stderr").warnings[0].hint
    assert ">&2" in hint
    assert "echo" in tasks_of("stderr-appended")["a"].run


def test_interpreter_line_is_a_comment():
    assert tasks_of("shebang")["a"].run == "x"
