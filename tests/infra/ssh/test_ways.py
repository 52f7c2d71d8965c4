"""The ways to a host that people have: over another host, other ports and keys, slow and lossy."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.ssh.person import Person, at_the_end, until
from tests.infra.ssh.rig import Rig, a_rig
from tests.infra.ssh.ssh_bench import configure

pytestmark = pytest.mark.ssh

HOSTS = ("host-1", "host-2", "inner")
LINES = 1000
TALK = f"""name: talk
resources: {{cpus: 1}}
run: |
  for i in $(seq {LINES}); do echo "line $i"; done
  echo "on $(cat /etc/hostname) as $(id -un)"
  exit 3
"""


@pytest.fixture(scope="module")
def far_rig() -> Iterator[Rig]:
    """`inner` is reached over host-1 only."""
    with a_rig("--hosts", "2", "--jump") as rig:
        yield rig


@pytest.fixture
def person(far_rig: Rig, tmp_path: Path) -> Iterator[Person]:
    """With the laptop's ssh as it was before, afterwards."""
    ssh = far_rig.user_home / ".ssh"
    kept = tmp_path / "ssh"
    shutil.copytree(ssh, kept)
    yield from at_the_end(Person(far_rig, tmp_path, HOSTS))
    shutil.rmtree(ssh)
    shutil.copytree(kept, ssh)


def pool(person: Person, text: str) -> None:
    """Another pool `lab` than all hosts."""
    configure(person.folder / "home", f"ssh: {{pools: {{lab: {text}}}}}\n")


def says_all(person: Person, host: str, user: str) -> None:
    """A program on the pool's host has its lines and its exit code."""
    code, out, err = person.launch(TALK)
    assert code == 100, out + err
    lines = [line.split("] ", 1)[1] for line in out.splitlines() if line.startswith("[talk")]
    assert lines == [*(f"line {number + 1}" for number in range(LINES)), f"on {host} as {user}"]
    (node,) = person.nodes("talk").values()
    assert (node["exit_code"], node["attempt"]) == (3, 1)


def test_over_a_jump_host(person):
    pool(person, "{hosts: [inner]}")
    says_all(person, "inner", "worker")


def test_at_another_port_with_a_key_that_is_named(person):
    """As the pool says it, with nothing of it in ~/.ssh/config."""
    key = person.rig.user_home / ".ssh" / "id_ed25519"
    pid = person.rig.on_host("host-1", OTHER_SSHD).strip()
    pool(
        person,
        "{accept_new: true, hosts: [{host: 172.31.88.11, user: root, port: 2222, name: other, "
        f"identity_file: {key}}}]}}",
    )
    try:
        says_all(person, "host-1", "root")
        assert person.nodes("talk")["talk-0"]["host"] == "other"
    finally:
        person.argosy("server", "stop")
        person.rig.on_host("host-1", f"kill {pid}")


OTHER_SSHD = r"""
daemon=$(command -v /usr/sbin/sshd || echo /usr/local/sbin/sshd)
LD_LIBRARY_PATH=/usr/local/lib $daemon -o PidFile=/run/other.pid -p 2222 -o ListenAddress=0.0.0.0
until [ -s /run/other.pid ]; do sleep 0.05; done
cat /run/other.pid
"""


def test_with_a_key_that_only_an_agent_has(person):
    """The file is gone; `IdentityAgent` of the user's own configuration leads to the agent."""
    ssh, socket = person.rig.user_home / ".ssh", person.rig.folder / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        until(socket.exists, "ssh-agent does not listen")
        add = ["ssh-add", "-q", str(ssh / "id_worker")]
        subprocess.run(add, env={**os.environ, "SSH_AUTH_SOCK": str(socket)}, check=True)
        (ssh / "id_worker").unlink()
        (ssh / "config").write_text(f"IdentityAgent {socket}\n" + (ssh / "config").read_text())
        pool(person, "{hosts: [host-2]}")
        says_all(person, "host-2", "worker")
    finally:
        agent.terminate()
        agent.wait()


def test_with_a_certificate(person, tmp_path):
    """Of an authority that the host trusts; the key itself is known to nobody."""
    ssh = person.rig.user_home / ".ssh"
    for name in ("authority", "fresh"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(words, check=True)
    sign = ["ssh-keygen", "-q", "-s", str(tmp_path / "authority"), "-I", "ada", "-n", "root"]
    subprocess.run([*sign, str(tmp_path / "fresh.pub")], check=True)
    authority = (tmp_path / "authority.pub").read_text()
    keys = "/root/.ssh/authorized_keys"
    before = person.rig.on_host("host-1", f"cat {keys}")
    person.rig.on_host("host-1", f"echo 'cert-authority {authority.strip()}' >{keys}")
    config = (ssh / "config").read_text().replace(str(ssh / "id_ed25519"), str(tmp_path / "fresh"))
    (ssh / "config").write_text(f"IdentitiesOnly yes\n{config}")
    pool(person, "{hosts: [host-1]}")
    try:
        says_all(person, "host-1", "root")
    finally:
        person.rig.on_host("host-1", f"cat >{keys} <<'E'\n{before}E")


def test_a_host_key_that_has_changed_is_refused_with_what_to_do(person):
    """`accept_new` does not take it either."""
    ssh = person.rig.user_home / ".ssh"
    lines = (ssh / "known_hosts").read_text().splitlines()
    second = next(line.split(" ", 1)[1] for line in lines if line.startswith("host-2,"))
    changed = [re.sub(r"^(host-1\S*) .*", rf"\1 {second}", line) for line in lines]
    (ssh / "known_hosts").write_text("\n".join(changed) + "\n")
    pool(person, "{hosts: [host-1], accept_new: true}")
    out = "".join(person.argosy("infra", "check", "ssh/lab")[1:])
    assert "host-1 shows another host key than before" in out
    assert "somebody may be in between" in out
    hint = re.search(r"`(ssh-keygen -f \S+ -R \S+)`", out)
    assert hint, out
    code, out, err = person.launch(TALK, "-d")
    assert code == 0, out + err
    until(lambda: "another host key" in person.argosy("explain", "talk")[1], "it is not explained")
    said = subprocess.run(hint[1].split(), capture_output=True, text=True, check=True)
    assert "updated" in said.stdout + said.stderr


def test_a_slow_and_lossy_way(person):
    """Late, and all the same."""
    for host in ("host-1", "host-2"):
        person.rig.verb("slow", host, "--delay", "80ms", "--loss", "2%", "--rate", "10mbit")
    try:
        pool(person, "{hosts: [host-2]}")
        says_all(person, "host-2", "worker")
        pool(person, "{hosts: [inner]}")
        person.argosy("server", "stop")
        says_all(person, "inner", "worker")
    finally:
        for host in ("host-1", "host-2"):
            person.rig.verb("slow", host)


def test_a_laptop_that_sleeps_harms_nothing(person):
    """The server and its connections stand still for half a minute; programs go on, one ends, and
    all that was said is there once.
    """
    pool(person, "{hosts: [host-1, host-2]}")
    code, out, err = person.launch(SLEEPLESS, "-d")
    assert code == 0, out + err
    until(lambda: person.group("awake")["phase"] == "RUNNING", "it does not run")
    hosts = {name: node["host"] for name, node in person.nodes("awake").items()}
    asleep = sleepers(person)
    assert len(asleep) > len(set(hosts.values()))
    for pid in asleep:
        os.kill(pid, 19)
    try:
        until(lambda: person.rig.on_host(hosts["goes-on-0"], SLEPT).strip(), "it stands still")
    finally:
        for pid in asleep:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 18)
    until(lambda: person.nodes("awake")["ends-0"]["exit_code"] == 5, "its end is not heard of")
    until(lambda: person.group("awake")["phase"] == "RUNNING", "it does not run any more")
    nodes = person.nodes("awake")
    assert {name: (node["attempt"], node["host"]) for name, node in nodes.items()} == {
        name: (1, host) for name, host in hosts.items()
    }
    seen = 0

    def more() -> bool:
        lines = person.argosy("logs", "awake/goes-on")[1].splitlines()
        found = [int(line.rpartition(" ")[2]) for line in lines if "line " in line]
        assert found == list(range(1, len(found) + 1))
        return len(found) > max(seen, MARK_LINE)

    until(more, "its lines do not come")
    assert person.argosy("exec", "awake/goes-on", "--", "true")[0] == 0


MARK_LINE = 300
SLEPT = "ls /tmp/slept 2>/dev/null || true"
SLEEPLESS = f"""name: awake
execution: parallel
primary_tasks: [goes-on]
---
name: goes-on
resources: {{cpus: 1}}
run: |
  rm -f /tmp/slept
  i=0; while :; do
    i=$((i+1)); echo "line $i"; [ $i != {MARK_LINE} ] || touch /tmp/slept; sleep 0.1
  done
---
name: ends
resources: {{cpus: 1}}
run: sleep 10; exit 5
"""


def sleepers(person: Person) -> list[int]:
    """The server of the home, and every `ssh` of it."""
    marks = (str(person.folder / "home"), person.rig.environment["XDG_RUNTIME_DIR"])
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().decode(errors="replace")
            around = (folder / "environ").read_bytes().decode(errors="replace")
            ours = "argosy" in line and f"ARGOSY_HOME={marks[0]}\0" in around
            if ours or (marks[1] in line and "ssh" in line):
                found.append(int(folder.name))
    return found
