"""Peers on hosts of their own, and beside each other on one: names, addresses, ports, refusals."""

from __future__ import annotations

import json

import pytest

from argosy.errors import CapacityError
from tests.infra.ssh.person import Person, until
from tests.infra.ssh.rig import a_rig
from tests.infra.ssh.ssh_bench import configure, end_agents

pytestmark = pytest.mark.ssh

ADDRESS = {"host-1": "172.31.88.11", "host-2": "172.31.88.12", "host-3": "172.31.88.13"}
SERVE = """
  cat > serve.py <<'END'
  import http.server, os
  class Answer(http.server.BaseHTTPRequestHandler):
      def do_GET(self):
          self.send_response(200)
          self.end_headers()
          self.wfile.write(os.environ["ARGOSY_NODE"].encode())
      def log_message(self, *words):
          pass
  where = (os.environ[BIND] if BIND else "", 8000)
  http.server.ThreadingHTTPServer(where, Answer).serve_forever()
  END
  exec python3 serve.py
"""
ASK = """
  cat > ask.py <<'END'
  import os, urllib.request
  def ask(name):
      return urllib.request.urlopen("http://%s:8000/" % name, timeout=20).read().decode()
  for name in ("server-0", "server-1"):
      print("ask", name, ask(name + ".peers"), flush=True)
  print("balanced", *sorted({ask("server.peers") for _ in range(20)}), flush=True)
  print("env", os.environ["ARGOSY_HOST_SERVER_0"], os.environ["ARGOSY_HOST_SERVER_1"], flush=True)
  END
  exec python3 ask.py
"""


def peers(resources: str, bind: str) -> str:
    """Two servers behind a balanced name, and who asks them."""
    serve = SERVE.replace("BIND", repr(bind))
    return f"""name: peers
execution: parallel
primary_tasks: [client]
---
name: server
num_nodes: 2
resources: {resources}
balance: 8000
ready: {{http: /, port: 8000}}
run: |{serve}
---
name: client
depends_on: {{server: healthy}}
resources: {resources}
run: |{ASK}
"""


def hosts_of(person: Person, group: str) -> dict[str, str]:
    """Node -> host."""
    shown = person.group(group)
    return {node["node"]: node["host"] for task in shown["tasks"] for node in task["nodes"]}


def said(out: str, word: str) -> list[list[str]]:
    """The words of what the client printed that begin so."""
    lines = [line.rpartition("] ")[2].split() for line in out.splitlines()]
    return [words[1:] for words in lines if words[:1] == [word]]


def test_nodes_on_three_hosts_reach_each_other_by_name_and_through_the_balance(person):
    """Of root and of others; each has the address of its host."""
    code, out, err = person.launch(peers("{accelerators: 'H100:8'}", "ARGOSY_HOSTNAME"))
    assert code == 0, out + err
    assert said(out, "ask") == [["server-0", "server-0"], ["server-1", "server-1"]]
    assert said(out, "balanced") == [["server-0", "server-1"]]
    where = hosts_of(person, "peers")
    assert len(set(where.values())) == 3
    assert said(out, "env") == [[ADDRESS[where["server-0"]], ADDRESS[where["server-1"]]]]


FILLER = "name: filler\nresources: {accelerators: 'H100:8'}\nrun: sleep 1000\n"
MOVED = f"""name: moved
execution: parallel
primary_tasks: [watcher]
---
name: server
resources: {{accelerators: 'H100:8'}}
ready: {{http: /, port: 8000}}
run: |{SERVE.replace("BIND", "'ARGOSY_HOSTNAME'")}
---
name: watcher
depends_on: {{server: healthy}}
resources: {{cpus: 0.25}}
run: |
  cat > watch.py <<'END'
  import socket, time, urllib.request
  seen = []
  while len(seen) < 2:
      address = socket.gethostbyname("server-0.moved")
      if address not in seen:
          try:
              urllib.request.urlopen("http://server-0.moved:8000/", timeout=1).read()
          except OSError:
              continue
          seen.append(address)
          print("seen", address, flush=True)
      time.sleep(0.05)
  END
  exec python3 watch.py
"""


def test_a_node_that_was_replaced_on_another_host_is_found_by_its_name(person):
    """By a peer that runs all the time, on the very host where the new one comes."""
    assert person.launch(FILLER, "-d")[0] == 0
    until(lambda: person.group("filler")["phase"] == "RUNNING", "filler does not run")
    code, out, err = person.launch(MOVED, "-d")
    assert code == 0, out + err
    until(lambda: "seen" in person.argosy("logs", "moved/watcher")[1], "it is not seen")
    before = hosts_of(person, "moved")
    assert (before["server-0"], before["watcher-0"]) == ("host-2", "host-1")
    person.argosy("cancel", "filler", "--wait")
    person.rig.verb("kill", "host-2")
    person.rig.verb("start", "host-2")
    until(lambda: person.group("moved")["phase"] == "SUCCEEDED", "its new place is not seen")
    assert said(person.argosy("logs", "moved/watcher")[1], "seen") == [
        [ADDRESS["host-2"]], [ADDRESS["host-1"]],
    ]  # fmt: skip


def test_two_nodes_on_one_host_use_one_port_in_networks_of_their_own(person):
    """They bind all addresses, which is right in an isolated network only."""
    code, out, err = person.launch(peers("{cpus: 0.25}", ""), "--network", "isolated")
    assert code == 0, out + err
    assert said(out, "ask") == [["server-0", "server-0"], ["server-1", "server-1"]]
    assert said(out, "balanced") == [["server-0", "server-1"]]
    assert len(set(hosts_of(person, "peers").values())) == 1


def test_isolated_on_several_hosts_is_refused_with_its_reason(person):
    """When it is planned, not later."""
    wide = peers("{accelerators: 'H100:8'}", "")
    code, out, err = person.launch(wide, "--network", "isolated")
    assert code == CapacityError.exit_code, out + err
    assert "`--network isolated` wants all 3 nodes on one host" in out + err


def test_ports_that_clash_on_a_host_are_named_before_it_is_launched(person):
    """Three nodes on two hosts: two of them have one address."""
    (person.folder / "group.yaml").write_text(peers("{accelerators: 'H100:4'}", "ARGOSY_HOSTNAME"))
    code, out, err = person.argosy(
        "plan", str(person.folder / "group.yaml"), "--infra", "ssh/lab", "-o", "json"
    )
    assert code == 0, out + err
    plan = json.loads(out)
    hosts = {node["node"]: node["host"] for task in plan["tasks"] for node in task["nodes"]}
    assert len(set(hosts.values())) == 2
    clash = [line for line in plan["warnings"] if "whose one address they share" in line]
    same = hosts["server-0"] == hosts["server-1"]
    assert [line.startswith("server-0 and server-1 use port 8000") for line in clash] == (
        [True] if same else []
    )


def test_while_a_host_does_not_answer_a_group_waits_and_says_so(tmp_path):
    """One that nobody ever reached: it may be the one that is large enough. Then it comes."""
    with a_rig("--hosts", "2", "--gpus", "host-2=8:H100") as rig:
        person = Person(rig, tmp_path)
        configure(tmp_path / "home", "ssh: {pools: {lab: {hosts: [host-1, host-2]}}}\n")
        rig.verb("cut", "host-2")
        try:
            text = "name: waits\nresources: {accelerators: 'H100:8'}\nrun: echo here\n"
            code, out, err = person.launch(text, "-d")
            assert code == 0, out + err
            until(
                lambda: "host-2 of ssh/lab does not answer" in person.argosy("explain", "waits")[1],
                "explain does not say which host is missing",
            )
            assert person.group("waits")["phase"] == "PENDING"
            rig.verb("heal", "host-2")
            until(lambda: person.group("waits")["phase"] == "SUCCEEDED", "it does not run")
        finally:
            person.argosy("cancel", "waits", "--now", "--wait")
            person.argosy("server", "stop")
            rig.verb("heal", "host-2")
            end_agents(rig, ("host-1", "host-2"))
