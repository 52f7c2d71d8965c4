"""What programs and agents are told, as text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from argosy.discovery.assignment import compose, group_fields, on_several_hosts
from argosy.discovery.env import environment
from argosy.model.action import Assign
from argosy.model.group import Book, Group, Lease, LeaseState, Order, Peer, Stage
from argosy.model.ids import AttemptId, GroupId, LeaseId, NodeId, Serial
from argosy.model.needs import Accelerator, Need
from argosy.model.plan import Placement
from argosy.model.spec import FileMount, GroupSpec, Probe, Ready, TaskSpec, Workdir

LEASE = LeaseId("g10-1.10-2")


def a_task(**more) -> TaskSpec:
    need = Need(accelerators=(Accelerator("H100", 8),), ports=("8000", "9000-9010"))
    return TaskSpec(
        **{
            "name": "PPO_Trainer",
            "num_nodes": 2,
            "needs": (need,),
            "envs": (("LR", "1e-3"), ("SKYPILOT_NODE_RANK", "7")),
            "secrets": (("TOKEN", "s3cret"),),
            "workdir": Workdir("/home/me/code"),
            "file_mounts": (
                FileMount("/data", "/home/me/data"),
                FileMount("/b", "s3://x", mode="COPY"),
            ),
            "ready": Ready(Probe.HTTP, port=8000, path="/health"),
            "run": "python train.py",
            **more,
        }
    )


def a_group(task: TaskSpec) -> Group:
    spec = GroupSpec("rl", (task, TaskSpec("rollout", balance=(8000,))), user="ada")
    where = Placement(
        NodeId(task.name, 1), "local/rack", "h1", task.needs[0], Accelerator("H100", 8)
    )
    lease = Lease(LEASE, where.node, where, LeaseState.HELD, 0.0)
    return Group(GroupId("g10-1"), spec, 0.0, incarnation=3, leases=(lease,))


def an_order(task: TaskSpec, **more) -> Order:
    return Order(
        **{
            "attempt": AttemptId("g10-1.10-5"),
            "node": NodeId(task.name, 1),
            "number": 2,
            "incarnation": 3,
            "goal": Stage.RUNNING,
            "restart_reason": "exit 1",
            **more,
        }
    )


def environment_of(task: TaskSpec, **more) -> dict[str, str]:
    group = a_group(task)
    return environment(group, task, an_order(task, **more), group.leases[0].placement)


def message(task: TaskSpec, *, grace_zero: bool = False, goal: Stage = Stage.RUNNING):
    group = replace(a_group(task), grace_zero=grace_zero)
    book = Book(4, (Peer(NodeId(task.name, 0), 1, "10.77.3.2", True, False),))
    assign = Assign(
        "local/rack", LEASE, "h1", Serial(16, 9), (an_order(task, goal=goal),), book
    )  # fmt: skip
    return compose(group, assign, gpu_indices=(0, 1))


@pytest.mark.parametrize("prefix", ["SKYPILOT_", "ARGOSY_"])
def test_the_contract_comes_under_both_prefixes(prefix):
    env = environment_of(a_task())
    wanted = {
        "NODE_RANK": "1",
        "SETUP_NODE_RANK": "1",
        "NUM_NODES": "2",
        "NUM_GPUS_PER_NODE": "8",
        "SETUP_NUM_GPUS_PER_NODE": "8",
        "JOBGROUP_NAME": "rl",
        "MANAGED_JOB_ID": "16000001",
        "USER": "ada",
    }
    assert {name: env[prefix + name] for name in wanted} == wanted
    info = json.loads(env[prefix + "CLUSTER_INFO"])
    assert info == {
        "cluster_name": "rl-ppo-trainer",
        "cloud": "local",
        "region": "rack",
        "zone": None,
    }


def test_an_attempt_knows_which_one_it_is_and_why():
    env = environment_of(a_task())
    assert env["ARGOSY_GROUP"] == "rl"
    assert env["ARGOSY_TASK"] == "PPO_Trainer"
    assert env["ARGOSY_NODE"] == "ppo-trainer-1"
    assert env["ARGOSY_ATTEMPT"] == "2"
    assert env["ARGOSY_INCARNATION"] == "3"
    assert env["ARGOSY_RESTART_REASON"] == "exit 1"
    assert env["LR"] == "1e-3"
    assert "TOKEN" not in env


def test_the_task_id_outlives_restarts():
    first = environment_of(a_task(), number=1, incarnation=1)
    again = environment_of(a_task(), number=9, incarnation=4)
    assert first["ARGOSY_TASK_ID"] == again["SKYPILOT_TASK_ID"]


def test_torchrun_names_are_set_only_when_asked_for():
    assert not {"MASTER_PORT", "WORLD_SIZE", "NODE_RANK"} & environment_of(a_task()).keys()
    env = environment_of(a_task(launcher="torchrun"))
    assert env["WORLD_SIZE"] == "16"
    assert env["NODE_RANK"] == "1"


def test_the_message_is_json_with_what_the_protocol_names():
    told = json.loads(json.dumps(message(a_task())))
    assert told["serial"] == [16, 9]
    assert told["group"]["incarnation"] == 3
    assert list(told["tasks"]) == ["PPO_Trainer"]
    task = told["tasks"]["PPO_Trainer"]
    assert task["workdir"] == "/home/me/code"
    assert task["file_mounts"] == [{"destination": "/data", "source": "/home/me/data", "name": ""}]
    web = (FileMount("/w", "https://x/y"), FileMount("/b", "https://a/b", store="az", mode="COPY"))
    (fetched,) = message(a_task(file_mounts=web))["tasks"]["PPO_Trainer"]["file_mounts"]
    assert fetched == {"destination": "/w", "source": "https://x/y", "name": ""}
    assert task["secrets"] == {"TOKEN": "s3cret"}
    assert task["gpus"] == 8
    assert task["ready"]["kind"] == "http"
    (order,) = told["orders"]
    assert order["goal"] == 30
    assert order["gpu_indices"] == [0, 1]
    assert order["env"]["ARGOSY_NODE_RANK"] == "1"
    assert order["grace"] is None


def test_cancel_now_sends_a_grace_of_zero():
    assert message(a_task(), grace_zero=True, goal=Stage.ENDED)["orders"][0]["grace"] == 0.0
    assert message(a_task(), grace_zero=True)["orders"][0]["grace"] is None


def test_the_book_names_every_node_with_or_without_an_address():
    book = message(a_task())["book"]
    assert book["version"] == 4
    by_name = {node["name"]: node for node in book["nodes"]}
    assert list(by_name) == ["ppo-trainer-0.rl", "ppo-trainer-1.rl", "rollout-0.rl"]
    assert by_name["ppo-trainer-0.rl"]["address"] == "10.77.3.2"
    assert by_name["ppo-trainer-0.rl"]["ports"] == [8000, "9000-9010"]
    assert by_name["rollout-0.rl"]["address"] == ""
    assert by_name["rollout-0.rl"]["ports"] == [8000]
    assert book["balanced"] == [{"task": "rollout", "name": "rollout.rl", "ports": [8000]}]


def on_hosts(*hosts: str, **more) -> Group:
    """A group with a lease on each of these hosts."""
    group = a_group(a_task())
    first = group.leases[0]
    leases = [
        replace(first, id=LeaseId(f"g10-1.10-{place}"), host=host)
        for place, host in enumerate(hosts)
    ]
    return replace(group, leases=tuple(leases), spec=replace(group.spec, **more))


def test_a_group_is_on_several_hosts_by_the_leases_that_it_has_and_keeps():
    assert not on_several_hosts(on_hosts("h1", "h1"), "local/rack")
    assert on_several_hosts(on_hosts("h1", "h2"), "local/rack")
    assert not on_several_hosts(on_hosts("h1", "h2"), "ssh/lab")
    group = on_hosts("h1", "h2")
    gone = replace(group.leases[1], state=LeaseState.RELEASING)
    assert not on_several_hosts(replace(group, leases=(group.leases[0], gone)), "local/rack")
    lost = replace(group.leases[1], lost=True)
    assert not on_several_hosts(replace(group, leases=(group.leases[0], lost)), "local/rack")


@pytest.mark.parametrize(
    ("wanted", "spread", "told"),
    [
        ("", True, ("host", True)),
        ("host", True, ("host", True)),
        ("isolated", True, ("host", True)),
        ("", False, ("", False)),
        ("isolated", False, ("isolated", False)),
    ],
)
def test_all_agents_are_told_which_network_the_group_has(wanted, spread, told):
    fields = group_fields(on_hosts("h1", "h2", network=wanted), spread=spread)
    assert (fields["network"], fields["spread"]) == told
