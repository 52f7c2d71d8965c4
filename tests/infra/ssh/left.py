"""What groups left on the rig's hosts, after they were removed: nothing must be."""

from __future__ import annotations

from collections.abc import Sequence

from tests.infra.ssh.rig import Rig
from tests.infra.ssh.ssh_bench import HOSTS

# Entries of the book; programs, by their mark; what the agents' folders hold for groups; networks,
# mounts and interfaces that a group made. Of the agent itself its program, its store of contents,
# and its own log stay.
LEFT = r"""
tail -n 1 /var/tmp/argosy-leases.json 2>/dev/null | cut -d' ' -f2- | grep -v '^{}$'
for pid in $(grep -ls ARGOSY_MARK /proc/[0-9]*/environ | tr -dc '0-9\n'); do
  tr '\0' ' ' </proc/$pid/cmdline; echo
done | grep -v agent.launch
find /root/.argosy-agent /home/worker/.argosy-agent -mindepth 5 2>/dev/null |
  grep -E '/(attempts|work|groups)/.'
ip -o link 2>/dev/null | cut -d: -f2 | grep -v -e lo -e eth
grep argosy /proc/mounts
find /tmp /run /dev/shm -mindepth 1 -not -path '/run/sshd*' -not -path '/run/lock*' \
  -not -name 'argosy-gpu*' 2>/dev/null | grep -v -e '^/tmp/argosy-agent' | grep argosy
true
"""


def left_on_hosts(rig: Rig, hosts: Sequence[str] = HOSTS) -> list[str]:
    """All that is still there, a line each."""
    found = []
    for host in hosts:
        lines = rig.on_host(host, LEFT).splitlines()
        found += [f"{host}: {line}" for line in lines if line.strip()]
    return found
