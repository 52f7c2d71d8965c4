"""A group on several hosts: the host's own address, names that follow the book, what is kept."""

from __future__ import annotations

from argosy.agent.net import machine
from argosy.agent.net.linux import interfaces
from tests.agent.rig import Agent

OWN = "127.0.0.9"
ELSEWHERE = "192.0.2.7"  # RFC 5737: no host has it
ASK = "getent hosts {} | head -n 1 | awk '{{print $1}}'"


def a_book(version: int, agent: Agent, elsewhere: str) -> dict:
    """a-0 is here, b-0 on another host."""
    nodes = [
        {"task": task, "index": 0, "node": f"{task}-0", "name": f"{task}-0.g", "address": where,
         "attempt": attempt, "live": True, "healthy": True}
        for task, where, attempt in (("a", OWN, agent.id("A")), ("b", elsewhere, "B"))
    ]  # fmt: skip
    return {"version": version, "nodes": nodes, "balanced": []}


def test_a_node_has_the_address_of_its_host_and_sees_peers_move(new_agent) -> None:
    agent = new_agent()
    agent.start("--address", OWN)
    run = f"""
{ASK.format("a-0.g")}; {ASK.format("b-0.g")}; {ASK.format("$ARGOSY_HOSTNAME")}
echo $ARGOSY_HOST_B_0
until [ "$({ASK.format("b-0.g")})" = 10.9.8.8 ]; do :; done
echo moved
"""
    agent.assign(("A", 20), run=run, spread=True, book=a_book(1, agent, ""))
    assert agent.stage("A", 20)["address"] == OWN
    agent.assign(("A", 30), run=run, spread=True, book=a_book(2, agent, "10.9.8.7"))
    agent.until(lambda: agent.log("A").count(b"\n") == 4)
    assert agent.log("A").decode().split() == [OWN, "10.9.8.7", OWN, "10.9.8.7"]
    agent.assign(("A", 30), run=run, spread=True, book=a_book(3, agent, ""))
    agent.assign(("A", 30), run=run, spread=True, book=a_book(4, agent, "10.9.8.8"))
    assert agent.end("A")[0] == "succeeded"
    assert agent.log("A").endswith(b"moved\n")


def test_two_nodes_on_one_host_have_one_address_and_both_are_probed(new_agent) -> None:
    """The second comes when the network is there already, and its probe finds it."""
    agent = new_agent()
    agent.start("--address", OWN)
    run = "exec python3 -m http.server --bind $ARGOSY_HOSTNAME $PORT"
    ready = {"kind": "http", "port": 18471, "path": "/"}
    agent.assign(("A", 30), run=run, spread=True, ready=ready, env={"PORT": 18471})
    agent.until(lambda: agent.attempts.get(agent.id("A"), {}).get("healthy"))
    agent.assign(
        ("A", 30), ("B", 30), run=run, spread=True, ready={**ready, "port": 18472},
        env={"PORT": 18472},
    )  # fmt: skip
    agent.until(lambda: agent.attempts.get(agent.id("B"), {}).get("healthy"))
    assert {one["address"] for one in agent.attempts.values()} == {OWN}


def test_a_network_that_programs_are_in_is_kept_and_the_next_attempt_gets_the_other(new_agent):
    agent = new_agent()
    agent.start("--address", OWN)
    agent.run("A", "sleep 1000")
    own = agent.attempts[agent.id("A")]["address"]
    assert own not in (OWN, "")
    agent.assign(("A", 30), ("B", 30), run="sleep 1000", spread=True)
    assert agent.stage("B", 30)["address"] not in (OWN, "", own)
    (event,) = [one for one in agent.events if one["code"] == "network-kept"]
    assert "a restart of the group mends it" in event["text"]
    agent.assign(("C", 30), run="true", spread=True)  # while the others are only to end yet
    assert agent.stage("C", 30)["address"] == OWN
    agent.end("C")
    agent.assign(("D", 30), run="true")
    assert agent.stage("D", 30)["address"] not in (OWN, "")


def test_an_agent_that_was_killed_knows_the_address_again(new_agent) -> None:
    agent = new_agent()
    agent.start("--address", OWN)
    agent.kill()
    agent.options = []
    agent.start()
    agent.assign(("A", 20), run="true", spread=True)
    assert agent.stage("A", 20)["address"] == OWN


def test_an_address_that_the_host_does_not_have_is_for_the_others(new_agent, monkeypatch) -> None:
    """Somebody in between passes it on to one that programs here can listen at."""
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    agent = new_agent()
    agent.start("--address", ELSEWHERE)
    agent.assign(("A", 30), run=ASK.format("$ARGOSY_HOSTNAME"), spread=True)
    assert agent.stage("A", 30)["address"] == ELSEWHERE
    agent.end("A")
    assert agent.log("A").decode().strip() == (machine.found_address() or ELSEWHERE)


def test_the_address_of_an_ssh_session_comes_first(monkeypatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.1.1.1 50000 10.1.1.2 22")
    assert machine.found_address() == "10.1.1.2"
    for session in ("::1 50000 ::1 22", "127.0.0.1 1 127.0.0.1 22", "nonsense"):
        monkeypatch.setenv("SSH_CONNECTION", session)
        assert not machine.found_address().startswith(("127.", ":"))


def test_what_nobody_here_has_cannot_be_listened_at() -> None:
    assert interfaces.bindable("127.0.0.1")
    assert not interfaces.bindable(ELSEWHERE)
