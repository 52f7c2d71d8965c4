"""Every key of every record: what it means, and what is refused."""

from __future__ import annotations

import pytest

from argosy.model.needs import Accelerator, Need
from argosy.model.spec import (
    Condition,
    EndsWith,
    Execution,
    FileMount,
    OnFailure,
    Probe,
    Ready,
    Restart,
    Scope,
    VolumeMount,
    Workdir,
)
from argosy.spec.keys import model
from tests.spec.reading import errors, group, read, task

PAIR = "---\nname: a\nrun: x\n---\nname: b\nrun: x\n"


# Key: a line, what it must give, and a line that is refused ("" when nothing is).
HEADER = {
    "name": ("name: My_G", lambda g: g.name == "my-g", "name: [a]"),
    "execution": ("execution: serial", lambda g: g.execution is Execution.SERIAL, "execution: all"),
    "primary_tasks": ("primary_tasks: [a]", lambda g: [t.primary for t in g.tasks] == [True, False],
                      "primary_tasks: {a: b}"),
    "termination_delay": ("termination_delay: {default: 5, b: 1m}",
                          lambda g: [t.termination_delay for t in g.tasks] == [5.0, 60.0],
                          "termination_delay: soon"),
    "inter_connection": ("inter_connection: false", lambda g: g.inter_connection is False,
                         "inter_connection: maybe"),
    "placement": ("placement: SAME_INFRA", lambda g: g.inter_connection is None, ""),
    "start_timeout": ("start_timeout: 2h", lambda g: g.start_timeout == 7200.0, "start_timeout: 0"),
    "priority": ("priority: -5", lambda g: g.priority == -5, "priority: 1001"),
    "max_duration": ("max_duration: 1d", lambda g: g.max_duration == 86400.0, "max_duration: 1y"),
    "on_failure": ("on_failure: stop", lambda g: g.on_failure is OnFailure.STOP, "on_failure: die"),
    "restarts": ("restarts: 2", lambda g: g.restarts == 2, "restarts: -1"),
    "envs": ("envs: {A: 1}", lambda g: all(t.envs == (("A", "1"),) for t in g.tasks),
             "envs: [A]"),
    "secrets": ("secrets: {A: 1}", lambda g: all(t.secrets == (("A", "1"),) for t in g.tasks),
                "secrets: 5"),
    "resources": ("resources: {cpus: 2}", lambda g: all(t.needs[0].cpus == 2.0 for t in g.tasks),
                  "resources: {cpu: 2}"),
    "infra": ("infra: k8s/lab", lambda g: {t.needs[0].infra for t in g.tasks} == {"kubernetes/lab"},
              "infra: moon"),
    "_user_specified_yaml": ("_user_specified_yaml: x", lambda g: g.name == "g", ""),
    "_metadata": ("_metadata: {}", lambda g: g.name == "g", ""),
}  # fmt: skip

TASK = {
    "name": ("name: Ab_c", lambda t: t.name == "Ab_c", "name: a b"),
    "num_nodes": ("num_nodes: 3", lambda t: len(t.nodes()) == 3, "num_nodes: 0"),
    "resources": ("resources: {}", lambda t: t.needs == (Need(),), "resources: 4"),
    "envs": ("envs: {A: 1.50}", lambda t: t.envs == (("A", "1.5"),), "envs: {1A: x}"),
    "secrets": ("secrets: {A: ''}", lambda t: t.secrets == (("A", ""),), "secrets: {A: [x]}"),
    "workdir": ("workdir: ~/x", lambda t: t.workdir == Workdir("/home/ada/x"), "workdir: s3://x"),
    "file_mounts": ("file_mounts: {/a: b}",
                    lambda t: t.file_mounts == (FileMount("/a", "/work/code/b"),),
                    "file_mounts: {/a: ftp://x/y}"),
    "volumes": ("volumes: {/a: v}", lambda t: t.volumes == (VolumeMount("/a", "v"),),
                "volumes: {../a: v}"),
    "setup": ("setup: |\n  pip list", lambda t: t.setup == "pip list\n", "setup: [a]"),
    "run": ("run: |\n  a\n  b\n", lambda t: t.run == "a\nb\n", "run: {a: b}"),
    "depends_on": ("depends_on: []", lambda t: t.depends_on == (), "depends_on: [q]"),
    "ready": ("ready: {tcp: 80}", lambda t: t.ready == Ready(Probe.TCP, 80), "ready: 80"),
    "restart": ("restart: {}", lambda t: t.restart == Restart(), "restart: always"),
    "balance": ("balance: [80, 90]", lambda t: t.balance == (80, 90), "balance: [80, 80]"),
    "grace": ("grace: 2m", lambda t: t.grace == 120.0, "grace: -1"),
    "strict": ("strict: true", lambda t: t.strict, "strict: 1"),
    "ends_with": ("ends_with: head", lambda t: t.ends_with is EndsWith.HEAD, "ends_with: tail"),
    "launcher": ("launcher: torchrun", lambda t: t.launcher == "torchrun", "launcher: mpirun"),
    "service": ("service: {ports: 80}", lambda t: t.ready is None, "service: {port: 80}"),
    "config": ("config: {a: 1}", lambda t: "`config`" in t.not_carried_out[0], "config: 1"),
    "event_callback": ("event_callback: ls", lambda t: "callback" in t.not_carried_out[0],
                       "event_callback: [ls]"),
    "api_server_access": ("api_server_access: true", lambda t: "access" in t.not_carried_out[0],
                          "api_server_access: 1"),
    "managed_secrets": ("managed_secrets: [A]", lambda t: "--secret" in t.not_carried_out[0], ""),
    "inputs": ("inputs: {s3://x: 1}", lambda t: "inputs" in t.not_carried_out[0], "inputs: 1"),
    "outputs": ("outputs: {s3://x: 1}", lambda t: "outputs" in t.not_carried_out[0], "outputs: 1"),
    "pool": ("pool: null", lambda t: t.not_carried_out == (), "pool: {workers: 1}"),
    "file_mounts_mapping": ("file_mounts_mapping: {}", lambda t: t.file_mounts == (), ""),
    "volume_mounts": ("volume_mounts: []", lambda t: t.volumes == (), ""),
    "_metadata": ("_metadata: {}", lambda t: t.not_carried_out == (), ""),
    "_user_specified_yaml": ("_user_specified_yaml: x", lambda t: t.not_carried_out == (), ""),
}  # fmt: skip


def said(t, word: str) -> bool:
    return any(f"`resources.{word}`" in sentence for sentence in t.not_carried_out)


RESOURCES = {
    "infra": ("infra: AWS/us-east-1", lambda t: t.needs[0].infra == "aws/us-east-1", "infra: a//b"),
    "cloud": ("cloud: GCP", lambda t: t.needs[0].infra == "gcp", "cloud: gpc"),
    "region": ("region: r", lambda t: t.needs[0].infra == "*/r", "region: [a]"),
    "zone": ("zone: z", lambda t: t.needs[0].infra == "*/*/z", "zone: [a]"),
    "cpus": ("cpus: 4+", lambda t: (t.needs[0].cpus, t.needs[0].cpus_exact) == (4.0, False),
             "cpus: four"),
    "memory": ("memory: 512MB", lambda t: t.needs[0].memory_gib == 0.5, "memory: true"),
    "accelerators": ("accelerators: h100:8",
                     lambda t: t.needs[0].accelerators == (Accelerator("H100", 8),),
                     "accelerators: H100:0"),
    "gpus": ("gpus: T4", lambda t: t.needs[0].accelerators == (Accelerator("T4"),), "gpus: 'T4:x'"),
    "accelerator_args": ("accelerator_args: {tpu_vm: true}", lambda t: said(t, "accelerator_args"),
                         "accelerator_args: 1"),
    "instance_type": ("instance_type: m5.large", lambda t: said(t, "instance_type"),
                      "instance_type: [a]"),
    "use_spot": ("use_spot: yes", lambda t: t.needs[0].use_spot and said(t, "use_spot"),
                 "use_spot: sometimes"),
    "job_recovery": ("job_recovery: failover", lambda t: t.restart == Restart(),
                     "job_recovery: {max_restarts_on_errors: -1}"),
    "disk_size": ("disk_size: 100", lambda t: t.needs[0].disk_gib == 100.0, "disk_size: 1x"),
    "ephemeral_storage": ("ephemeral_storage: 5GB", lambda t: t.needs[0].disk_gib == 5.0,
                          "ephemeral_storage: x"),
    "disk_tier": ("disk_tier: high", lambda t: ("disk_tier", "high") in t.needs[0].other,
                  "disk_tier: []"),
    "network_tier": ("network_tier: best", lambda t: said(t, "network_tier"), "network_tier: {}"),
    "local_disk": ("local_disk: nvme:1000+", lambda t: said(t, "local_disk"), "local_disk: []"),
    "max_hourly_cost": ("max_hourly_cost: 2.5", lambda t: t.needs[0].max_price_per_hour_usd == 2.5,
                        "max_hourly_cost: 0"),
    "ports": ("ports: [80, 80, '90']", lambda t: t.needs[0].ports == ("80", "90"), "ports: 0"),
    "image_id": ("image_id: docker:a/b:c", lambda t: t.needs[0].image == "docker:a/b:c",
                 "image_id: 'a b'"),
    "labels": ("labels: {a: 1}", lambda t: t.needs[0].labels == (("a", "1"),), "labels: [a]"),
    "autostop": ("autostop: 5", lambda t: said(t, "autostop"), ""),
    "priority": ("priority: 7", lambda t: t.needs == (Need(),), "priority: -1001"),
    "priority_class": ("priority_class: high", lambda t: said(t, "priority_class"),
                       "priority_class: []"),
    "volumes": ("volumes: [{name: a}]", lambda t: said(t, "volumes"), ""),
    "any_of": ("any_of: [{cpus: 1}, {cpus: 2}]",
               lambda t: [n.cpus for n in t.needs] == [1.0, 2.0] and not t.needs_ordered,
               "any_of: [{any_of: []}]"),
    "ordered": ("ordered: [{cpus: 1}, {cpus: 2}]",
                lambda t: [n.cpus for n in t.needs] == [1.0, 2.0] and t.needs_ordered,
                "ordered: [{cpus: x}]"),
}  # fmt: skip

READY = {
    "http": ("http: health, port: 1", lambda t: t.ready == Ready(Probe.HTTP, 1, "/health"),
             "http: [], port: 1"),
    "tcp": ("tcp: 80", lambda t: t.ready == Ready(Probe.TCP, 80), "tcp: 0"),
    "command": ("command: 'test -e x'",
                lambda t: t.ready == Ready(Probe.COMMAND, text="test -e x"), "command: [a]"),
    "log": ("log: 'ready in \\d+ s'", lambda t: t.ready == Ready(Probe.LOG, text=r"ready in \d+ s"),
            "log: '['"),
    "port": ("http: /, port: 65535", lambda t: t.ready.port == 65535, "http: /, port: 65536"),
    "interval": ("tcp: 1, interval: 5s", lambda t: t.ready.interval == 5.0, "tcp: 1, interval: 0"),
    "timeout": ("tcp: 1, timeout: 5", lambda t: t.ready.timeout == 5.0, "tcp: 1, timeout: x"),
    "failures": ("tcp: 1, failures: 5", lambda t: t.ready.failures == 5, "tcp: 1, failures: 0"),
    "start_period": ("tcp: 1, start_period: 1m", lambda t: t.ready.start_period == 60.0,
                     "tcp: 1, start_period: -1"),
}  # fmt: skip

RESTART = {
    "on": ("on: [failure, 3, lost]",
           lambda t: t.restart == Restart(on_failure=True, on_codes=(3,)), "on: [sometimes]"),
    "max": ("on: failure, max: 3", lambda t: t.restart.max == 3, "on: failure, max: many"),
    "backoff": ("backoff: 2s..1m",
                lambda t: (t.restart.backoff_first, t.restart.backoff_most) == (2.0, 60.0),
                "backoff: 1m..2s"),
    "scope": ("scope: group", lambda t: t.restart.scope is Scope.GROUP, "scope: all"),
    "with": ("with: []", lambda t: t.restart.along == (), "with: [q]"),
}  # fmt: skip

SERVICE = {
    "readiness_probe": ("readiness_probe: /h, ports: 80", lambda t: t.ready.path == "/h",
                        "readiness_probe: [a]"),
    "ports": ("readiness_probe: /, ports: 80", lambda t: t.ready.port == 80, "ports: 70000"),
    "replicas": ("replicas: 2", lambda t: "replicas" in t.not_carried_out[0], "replicas: x"),
    "replica_policy": ("replica_policy: {min_replicas: 1}",
                       lambda t: "replica_policy" in t.not_carried_out[0], "replica_policy: 1"),
    "load_balancing_policy": ("load_balancing_policy: round_robin",
                              lambda t: "balance" in t.not_carried_out[0],
                              "load_balancing_policy: []"),
    "load_balancer": ("load_balancer: {}", lambda t: "balance" in t.not_carried_out[0],
                      "load_balancer: 1"),
    "tls": ("tls: {}", lambda t: "tls" in t.not_carried_out[0], "tls: 1"),
    "workers": ("workers: 1", lambda t: "workers" in t.not_carried_out[0], "workers: x"),
    "pool": ("pool: {}", lambda t: "pool" in t.not_carried_out[0], "pool: 1"),
}  # fmt: skip

PROBE = {
    "path": ("path: h", lambda t: t.ready.path == "/h", "path: []"),
    "initial_delay_seconds": ("initial_delay_seconds: 0", lambda t: t.ready.start_period == 0.0,
                              "initial_delay_seconds: -1"),
    "timeout_seconds": ("timeout_seconds: 3", lambda t: t.ready.timeout == 3.0,
                        "timeout_seconds: x"),
    "endpoint_probe_interval_seconds": ("endpoint_probe_interval_seconds: 2.5",
                                        lambda t: t.ready.interval == 2.5,
                                        "endpoint_probe_interval_seconds: 0"),
    "consecutive_failure_threshold_timeout": ("consecutive_failure_threshold_timeout: 5",
                                              lambda t: t.ready.failures == 5,
                                              "consecutive_failure_threshold_timeout: x"),
    "post_data": ("post_data: {a: 1}", lambda t: t.ready.kind is Probe.TCP, ""),
    "headers": ("headers: {a: b}", lambda t: t.ready.kind is Probe.TCP, "headers: [a]"),
}  # fmt: skip

RECOVERY = {
    "strategy": ("strategy: none", lambda t: not t.restart.on_lost, "strategy: []"),
    "max_restarts_on_errors": ("max_restarts_on_errors: 2",
                               lambda t: t.restart == Restart(on_failure=True, max=2),
                               "max_restarts_on_errors: x"),
    "recover_on_exit_codes": ("recover_on_exit_codes: 3", lambda t: t.restart.on_codes == (3,),
                              "recover_on_exit_codes: [256]"),
}  # fmt: skip

STORAGE = {
    "name": ("name: b", lambda t: t.file_mounts == (FileMount("/a", "", "b", "", "MOUNT"),),
             "name: []"),
    "source": ("source: [a, s3://b]",
               lambda t: [m.source for m in t.file_mounts] == ["/work/code/a", "s3://b"],
               "source: ftp://a"),
    "store": ("name: b, store: GCS", lambda t: t.file_mounts[0].store == "gcs",
              "name: b, store: tape"),
    "mode": ("name: b, mode: copy", lambda t: t.file_mounts[0].mode == "COPY",
             "name: b, mode: LINK"),
    "persistent": ("name: b, persistent: false", lambda t: t.file_mounts[0].persistent is False,
                   "name: b, persistent: maybe"),
    "type": ("name: b, type: MODEL", lambda t: t.file_mounts[0].name == "b", "name: b, type: []"),
    "mount_options": ("name: b, mount_options: x", lambda t: t.file_mounts[0].name == "b",
                      "name: b, mount_options: []"),
    "config": ("name: b, config: {}", lambda t: t.file_mounts[0].name == "b",
               "name: b, config: 1"),
}  # fmt: skip

VOLUME = {
    "name": ("name: v", lambda t: t.volumes[0].name == "v", "name: []"),
    "sub_path": ("name: v, sub_path: p", lambda t: t.volumes[0].sub_path == "p",
                 "name: v, sub_path: a/../../b"),
    "host_path": ("host_path: /x", lambda t: t.volumes[0].host_path == "/x", "host_path: x"),
    "mode": ("host_path: /x, mode: ro", lambda t: t.volumes[0].read_only, "name: v, mode: x"),
    "size": ("size: 10Gi", lambda t: t.volumes[0].size_gib == 10.0, "size: big"),
    "read_only": ("name: v, read_only: true", lambda t: t.volumes[0].read_only,
                  "name: v, mode: rw, read_only: true"),
    "type": ("host_path: /x, type: NFS", lambda t: t.volumes[0].kind == "nfs",
             "size: 1, type: nfs"),
    "labels": ("size: 1, labels: {a: b}", lambda t: t.volumes[0].labels == (("a", "b"),),
               "size: 1, labels: 1"),
    "config": ("size: 1, config: {access_mode: ReadWriteMany, storage_class_name: fast}",
               lambda t: (t.volumes[0].access_mode, t.volumes[0].storage_class)
               == ("ReadWriteMany", "fast"), "size: 1, config: {mode: x}"),
}  # fmt: skip

GIT = {
    "url": ("url: https://x/y", lambda t: t.workdir == Workdir(url="https://x/y"), "url: []"),
    "ref": ("url: u, ref: main", lambda t: t.workdir.ref == "main", "ref: main"),
}  # fmt: skip

BELOW = {
    "resources: {{{}}}": (model.RESOURCES, RESOURCES),
    "ready: {{{}}}": (model.READY, READY),
    "restart: {{{}}}": (model.RESTART, RESTART),
    "service: {{{}}}": (model.SERVICE, SERVICE),
    "service: {{ports: 80, readiness_probe: {{{}}}}}": (model.PROBE, PROBE),
    "resources: {{job_recovery: {{{}}}}}": (model.RECOVERY, RECOVERY),
    "file_mounts: {{/a: {{{}}}}}": (model.STORAGE, STORAGE),
    "volumes: {{/a: {{{}}}}}": (model.VOLUME, VOLUME),
    "workdir: {{{}}}": (model.GIT, GIT),
}
NESTED = [(form, key) for form, (_, table) in BELOW.items() for key in table]


def test_every_key_is_tested():
    tables = [(model.HEADER, HEADER), (model.TASK, TASK), *BELOW.values()]
    for record, table in tables:
        assert {key.name for key in record.keys} == set(table)


def with_run(line: str) -> str:
    return line if line.startswith("run:") else f"{line}\nrun: x"


@pytest.mark.parametrize("key", HEADER)
def test_header_key(key):
    good, holds, bad = HEADER[key]
    assert holds(group(_header(key, good)))
    if bad:
        assert any(error.place.line in (1, 2, 3) for error in errors(_header(key, bad)))


def _header(key: str, line: str) -> str:
    lines = {"name": "name: g", "execution": "execution: parallel", key: line}
    return "\n".join(lines.values()) + f"\n{PAIR}"


@pytest.mark.parametrize("key", TASK)
def test_task_key(key):
    good, holds, bad = TASK[key]
    assert holds(task(with_run(good)))
    if bad:
        assert errors(with_run(bad))[0].place.line == 1


@pytest.mark.parametrize(("form", "key"), NESTED)
def test_nested_key(form, key):
    good, holds, bad = BELOW[form][1][key]
    assert holds(task(with_run(form.format(good))))
    if bad:
        assert errors(with_run(form.format(bad)))[0].place.line == 1


@pytest.mark.parametrize("form", BELOW)
def test_unknown_nested_key_is_an_error(form):
    found = errors(with_run(form.format("qqqq: 1")))
    assert any(error.code == "spec/unknown-key" for error in found)


def test_unknown_task_key_names_the_nearest():
    (error,) = errors("name: a\nrun: x\nnum_node: 2\n")
    assert (error.code, error.place.line, error.place.column) == ("spec/unknown-key", 3, 1)
    assert error.hints == ("did you mean `num_nodes`?",)
    assert error.place.source == "num_node: 2"


def test_dependencies_in_both_forms():
    spec = group(
        "execution: parallel\n---\nname: a\nrun: x\ndepends_on: [b, c]\n---\nname: b\nrun: x\n"
        "ready: {tcp: 80}\n---\nname: c\nrun: x\ndepends_on: {b: succeeded}\n"
    )
    assert spec.tasks[0].depends_on == (("b", Condition.HEALTHY), ("c", Condition.STARTED))
    assert spec.tasks[2].depends_on == (("b", Condition.SUCCEEDED),)


def test_default_restart_is_of_the_task_when_it_has_several_nodes():
    assert task("run: x").restart == Restart(scope=Scope.NODE)
    assert task("run: x\nnum_nodes: 2").restart == Restart(scope=Scope.TASK)
    assert task("run: x\nnum_nodes: 2\nrestart: {scope: node}").restart == Restart()
    assert task("run: x\nrestart: {'on': []}").restart == Restart(on_lost=False)


def test_defaults_of_the_header_lie_beneath_the_tasks_own_words():
    spec = group(
        "execution: parallel\ninfra: local\nenvs: {A: 1, B: 2}\nresources: {cpus: 2, memory: 4}\n"
        "secrets: [S]\n"
        "---\nname: a\nrun: x\nenvs: {B: 3}\nresources: {cpus: 8, cloud: aws}\nsecrets: {T: u}\n"
        "---\nname: b\nrun: x\n",
        environ=(("S", "s"),),
    )
    first, second = spec.tasks
    assert dict(first.envs) == {"A": "1", "B": "3"}
    assert dict(first.secrets) == {"S": "s", "T": "u"}
    assert (first.needs[0].cpus, first.needs[0].memory_gib) == (8.0, 4.0)
    assert (first.needs[0].infra, second.needs[0].infra) == ("aws", "local")


def test_priority_of_the_header_wins_over_those_of_the_tasks():
    tasks = "---\nname: a\nrun: x\nresources: {priority: 3}\n---\nname: b\nrun: x\n"
    assert group(f"execution: parallel\n{tasks}").priority == 3
    assert group(f"execution: parallel\npriority: -2\n{tasks}").priority == -2


def test_wildcards_are_anywhere():
    assert task("run: x\nresources: {infra: '*'}").needs == (Need(),)
    assert task("run: x\nresources: {infra: '*/us-east-1'}").needs[0].infra == "*/us-east-1"
    assert task("run: x\nresources: {infra: k8s/aws:eks/a/b}").needs[0].infra == (
        "kubernetes/aws:eks/a/b"
    )


def test_probe_takes_the_only_port_that_the_task_names():
    assert task("run: x\nbalance: 8000\nready: {http: /h}").ready == Ready(Probe.HTTP, 8000, "/h")
    named = "run: x\nresources: {ports: 9000}\nready: {http: /h}"
    assert task(named).ready == Ready(Probe.HTTP, 9000, "/h")


def test_serial_groups_have_no_primaries_and_wait_only_backwards():
    found = errors("execution: serial\nprimary_tasks: [a]\n---\nname: a\nrun: x\n---\nname: b\n"
                   "run: x\n")  # fmt: skip
    assert [error.code for error in found] == ["spec/serial-primary"]
    text = "name: a\nrun: x\ndepends_on: [b]\n---\nname: b\nrun: x\n"
    assert [error.code for error in errors(text)] == ["spec/serial-order"]


def test_user_is_kept():
    assert read("run: x").spec.user == "ada"


def test_large_variables_are_refused_where_the_kernel_would():
    fits = "v" * (131_071 - 2)
    assert len(task("run: x", envs=(("A", fits),)).envs[0][1]) == len(fits)
    (error,) = errors("run: x", envs=(("A", fits + "v"),))
    assert error.code == "spec/env-too-large"
    found = errors("run: x", envs=tuple((f"A{i}", "v" * 100_000) for i in range(16)))
    assert [error.code for error in found] == ["spec/env-too-large"]
