"""The two scripts of a pod: how its container starts, and how a command of the agent is run there.

They need no more than `sh` and Python >= 3.8 of the image. Without Python the first writes why to
the termination log, which the cluster shows as the message of the container's end, and exits with
NO_PYTHON; the second finds the interpreter, and the form of the agent that it runs, in the file
that the first wrote. `relay` is a program of its own, which starts sooner than the agent's command.
"""

from __future__ import annotations

import shlex
from typing import Final

from argosy.infra.interpreter import PYTHONS, find
from argosy.infra.kubernetes.marks import NO_PYTHON, NO_PYTHON_TEXT

NOT_STARTED: Final = 91  # exit status of `agent` before `start` has found Python
ATTACHED: Final = "argosy:attached"  # the first word of a stream that stands

ATTACH_WAIT: Final = 10.0  # seconds that `attach` waits for an agent that is being started
START_TRIES: Final = 100  # of 0.05 s, that `agent` waits for `start`

MOUNT: Final = "/argosy"  # where the secret is mounted, read-only
DIAL_MOUNT: Final = "/argosy-dial"  # where the secret of the lease is, if agents dial
DIAL_VOLUME: Final = "argosy-dial"
CERTIFICATE_KEY, TOKEN_KEY = "certificate", "token"  # as agent/pod/dial.py has it
FOLDER: Final = "/var/argosy"  # where the pod's own folder is
HOME: Final = f"{FOLDER}/home"
HOSTS: Final = "/etc/hosts"  # which the agent writes, if it may
AGENT_KEY: Final = "agent.pyz"  # and beside it, as agent.MARK.pyz, its code for one Python
RELAY_KEY: Final = "relay.py"
START_KEY: Final = "start"
COMMAND_KEY: Final = "agent"

ELSEWHERE: Final = "/usr/local/bin/python3 /usr/bin/python3 /opt/conda/bin/python3"

START: Final = f"""{find(f"{PYTHONS} {ELSEWHERE}")}if [ -z "$p" ]; then
  old="{NO_PYTHON_TEXT}${{old:+ (it has Python $old)}}"
  echo "$old" >/dev/termination-log
  echo "$old" >&2
  exit {NO_PYTHON}
fi
a={MOUNT}/agent.$m.pyz
[ -f "$a" ] || a={MOUNT}/{AGENT_KEY}
printf '%s\\n%s\\n' "$p" "$a" >{FOLDER}/python || exit 1
exec "$p" -I -S "$a" container --home {HOME} \
--server-id "$ARGOSY_SERVER_ID" --address "$ARGOSY_POD_IP"
"""

AGENT: Final = f"""n=0
while [ ! -s {FOLDER}/python ] && [ $n -lt {START_TRIES} ]; do sleep 0.05; n=$((n+1)); done
p= a=
{{ read -r p && read -r a; }} 2>/dev/null <{FOLDER}/python
if [ -z "$a" ]; then echo "the agent of this pod has not been started yet" >&2; \
exit {NOT_STARTED}; fi
if [ "$1" = relay ]; then shift; a={MOUNT}/{RELAY_KEY}; fi
exec "$p" -I -S "$a" "$@"
"""

START_COMMAND: Final = ("sh", f"{MOUNT}/{START_KEY}")
ATTACH_COMMAND: Final = (
    "sh", f"{MOUNT}/{COMMAND_KEY}", "relay", HOME, ATTACHED, f"{ATTACH_WAIT:g}",
)  # fmt: skip
# The same where names do not need the cluster, which does not know the pod's address yet.
EARLY_COMMAND: Final = (
    "sh", "-c",
    f'[ -w {HOSTS} ] || {{ echo "its names need the cluster" >&2; exit 1; }}; '
    f"exec {shlex.join(ATTACH_COMMAND)}",
)  # fmt: skip
KEEP_COMMAND: Final = ("sh", f"{MOUNT}/{COMMAND_KEY}", "keep", "--home", HOME)
