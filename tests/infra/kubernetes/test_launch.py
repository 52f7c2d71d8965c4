"""A person's whole way on a real cluster: the command, its server, names, codes, logs, exec, cp."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import subprocess

import pytest

from tests.infra.kubernetes.rig import until

pytestmark = pytest.mark.kubernetes

LINES = 2000
PAIR = f"""name: pair
execution: parallel
inter_connection: true
---
name: left
num_nodes: 2
resources: {{cpus: 1}}
run: |
  echo "left $ARGOSY_NODE_RANK of $ARGOSY_NUM_NODES on $(hostname) for $WHO"
  for name in left-0 left-1 right-0; do
    echo "knows $name $(getent ahostsv4 $name.pair | sed -n 's/ .*STREAM.*//p')"
  done
envs: {{WHO: everybody}}
---
name: right
resources: {{cpus: 1}}
depends_on: {{left: succeeded}}
run: |
  for i in $(seq {LINES}); do echo "line $i"; done
  exit 3
"""
SERVICE = """name: web
resources: {cpus: 1}
run: |
  mkdir -p served && cd served && echo "from $ARGOSY_NODE" >index.html
  trap 'echo asked to end; exit 0' TERM
  python3 -m http.server 8000 &
  wait
"""


def test_a_group_meets_by_name_and_ends_with_its_codes(person):
    """Every pod resolves all names to the pods' own addresses; every line of the logs is there."""
    code, out, err = person.launch(PAIR)
    assert code == 100, out + err
    ranks = sorted(re.findall(r"left (\d) of 2 on (\S+) for everybody", out))
    assert ranks == [("0", "left-0"), ("1", "left-1")]
    known = {line.partition("knows ")[2] for line in out.splitlines() if "knows " in line}
    assert len(known) == 3, out  # both nodes say the same of each of the three
    assert len({one.split()[1] for one in known}) == 3
    right = [line.split("] ", 1)[1] for line in out.splitlines() if line.startswith("[right")]
    assert right == [f"line {number + 1}" for number in range(LINES)]
    codes = {name: node["exit_code"] for name, node in person.nodes("pair").items()}
    assert codes == {"left-0": 0, "left-1": 0, "right-0": 3}


def test_logs_outlive_the_pods(person):
    """They are the same afterwards as they were for whoever followed."""
    _, out, _ = person.launch(PAIR)
    assert not person.space.pods()
    assert sorted(person.logs("pair")) == sorted(
        line for line in out.splitlines() if line.startswith("[")
    )


def test_exec_cp_and_forward_reach_a_pod(person, tmp_path):
    """Codes, bytes both ways, a terminal, a connection."""
    person.launched(SERVICE)
    person.phase("web", "RUNNING")
    code, out, _ = person.argosy("exec", "web", "--", "sh", "-c", "echo $ARGOSY_NODE; exit 5")
    assert (code, out) == (5, "web-0\n")
    sent, back = tmp_path / "sent", tmp_path / "back"
    sent.write_bytes(os.urandom(300_000))
    person.did("cp", str(sent), "web:served/sent")
    person.did("cp", "web:served/sent", str(back))
    assert back.read_bytes() == sent.read_bytes()
    assert "24 80" in _in_a_terminal(person, "exec", "-it", "web", "--", "stty", "size")
    forward = person.start("forward", "web", "0:8000")
    try:
        port = int(re.search(r"127\.0\.0\.1:(\d+)", forward.stderr.readline())[1])
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        asking.request("GET", "/")
        assert asking.getresponse().read() == b"from web-0\n"
        asking.close()
    finally:
        forward.terminate()
        forward.communicate(timeout=30)


def _in_a_terminal(person, *words: str) -> str:
    """What a command shows in a terminal of 24 lines by 80."""
    leader, follower = pty.openpty()
    subprocess.run(["stty", "rows", "24", "cols", "80"], stdin=follower, check=True)
    process = person.start(*words, stdin=follower, stdout=follower)
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 4096):
            shown += part
    except OSError:  # the other side has ended
        pass
    finally:
        os.close(leader)
        process.communicate(timeout=60)
    return shown.decode()


def test_cancel_asks_programs_to_end_and_leaves_nothing(person):
    """No pod, no service, no secret, no config map; what was said at last is in the log."""
    person.launched(SERVICE)
    person.phase("web", "RUNNING")
    assert {one.split()[0] for one in person.space.ours()} == {
        "Pod", "Service", "Secret", "ConfigMap",
    }  # fmt: skip
    person.did("cancel", "web", "--wait")
    assert person.group("web")["phase"] == "CANCELLED"
    until(lambda: not person.space.ours(), lambda: f"left: {person.space.ours()}")
    assert any("asked to end" in line for line in person.logs("web"))


def test_no_secret_is_in_what_others_can_read(person):
    """A secret of the user reaches the program, and stands in no object of the cluster."""
    value = "tell-nobody-17"
    text = "name: s\nresources: {cpus: 1}\nrun: 'echo got ${#TOKEN}; sleep 1000'\n"
    person.launched(text, "--secret", f"TOKEN={value}")
    person.phase("s", "RUNNING")
    until(lambda: any("got 14" in line for line in person.logs("s")), "the program has no secret")
    kinds = "pods,secrets,configmaps,services,events"
    whole = json.dumps(person.space.get(kinds))
    assert value not in whole
    decoded = person.space.kubectl("get", "secrets", "-o", "go-template={{range .items}}"
        "{{range $k, $v := .data}}{{if lt (len $v) 100000}}{{$v | base64decode}}{{end}}{{end}}"
        "{{end}}")  # fmt: skip
    assert value not in decoded
    person.did("cancel", "s", "--now", "--wait")
