"""The two scripts of a pod: how its container starts, and how a command of the agent is run there.

They need no more than `sh` and Python >= 3.8 of the image. Without Python the first writes why to
the termination log, which the cluster shows as the message of the container's end, and exits with
NO_PYTHON; the second finds the interpreter in the file that the first wrote.
"""

from __future__ import annotations

from typing import Final

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
AGENT_KEY: Final = "agent.pyz"
START_KEY: Final = "start"
COMMAND_KEY: Final = "agent"

PYTHONS: Final = (
    "python3 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python "
    "/usr/local/bin/python3 /usr/bin/python3 /opt/conda/bin/python3"
)

START: Final = f"""p= old=
for n in {PYTHONS}; do
  c=$(command -v "$n" 2>/dev/null) || continue
  v=$("$c" -I -S -c 'import sys; print("%d.%d" % sys.version_info[:2]); \
sys.exit(sys.version_info < (3, 8))' 2>/dev/null) && p=$c && break
  old="${{v:+ (it has Python $v)}}"
done
if [ -z "$p" ]; then
  echo "{NO_PYTHON_TEXT}$old" >/dev/termination-log
  echo "{NO_PYTHON_TEXT}$old" >&2
  exit {NO_PYTHON}
fi
echo "$p" >{FOLDER}/python || exit 1
exec "$p" -I -S {MOUNT}/{AGENT_KEY} container --home {HOME} \
--server-id "$ARGOSY_SERVER_ID" --address "$ARGOSY_POD_IP"
"""

AGENT: Final = f"""n=0
while [ ! -s {FOLDER}/python ] && [ $n -lt {START_TRIES} ]; do sleep 0.05; n=$((n+1)); done
p=
read -r p 2>/dev/null <{FOLDER}/python
if [ -z "$p" ]; then echo "the agent of this pod has not been started yet" >&2; \
exit {NOT_STARTED}; fi
exec "$p" -I -S {MOUNT}/{AGENT_KEY} "$@"
"""

START_COMMAND: Final = ("sh", f"{MOUNT}/{START_KEY}")
ATTACH_COMMAND: Final = (
    "sh",
    f"{MOUNT}/{COMMAND_KEY}",
    "attach",
    "--home",
    HOME,
    "--say",
    ATTACHED,
    "--wait",
    f"{ATTACH_WAIT:g}",
)
KEEP_COMMAND: Final = ("sh", f"{MOUNT}/{COMMAND_KEY}", "keep", "--home", HOME)
