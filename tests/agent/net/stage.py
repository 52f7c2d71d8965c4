"""Where scenes are played: a copy of the agent, a private network, root or an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.pythons import oldest_python

PLACES = ("tmp-root", "tmp-user", "tmp-contained")
USER = 4242  # an id that owns nothing
SCENE_SECONDS = 120
HERE = Path(__file__).parent
AGENT = HERE.parents[2] / "src" / "argosy" / "agent"

# A network with nothing but a default route, and a tun device that an ordinary user may open, as
# most distributions have it. Nothing of the machine's own is touched.
OUTSIDE = """
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
ip link add out0 type veth peer name out1
ip address add 198.51.100.1/24 dev out0
ip link set out0 up; ip link set out1 up
ip route add default via 198.51.100.2
mount -t tmpfs tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200
: >"$1/resolv.conf"; mount --bind "$1/resolv.conf" "$(realpath /etc/resolv.conf)"
shift
exec "$@"
"""


def who_can_play() -> list[str]:
    """As root both kinds of user, else the one that we are."""
    return ["root", "user"] if os.geteuid() == 0 else ["user"]


def contained() -> list[str]:
    """Root without the capabilities that a plain container lacks; only root can make one."""
    return ["contained"] if os.geteuid() == 0 else []


def scenes(module: str) -> list[str]:
    """The public functions of a module of scenes, in order, without importing it."""
    text = (HERE / "scenes" / (module + ".py")).read_text()
    lines = [line for line in text.splitlines() if line.startswith("def ")]
    names = [line[4:].partition("(")[0] for line in lines]
    return [name for name in names if not name.startswith("_")]


def set_stage(folder: Path) -> Path:
    """Copy what a scene needs to where every user may read it."""
    shutil.copytree(AGENT, folder / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        HERE / "scenes", folder / "scenes", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in PLACES:
        (folder / name).mkdir()
    os.chmod(folder, 0o755)
    if os.geteuid() == 0:
        os.chown(folder / "tmp-user", USER, USER)
    return folder


def interpreter(who: str) -> str:
    """The oldest Python that this user may run."""
    if who == "user" and os.geteuid() == 0:
        found = [
            path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(path)
        ]
        return (found or [sys.executable])[0]
    return oldest_python()


def play(folder: Path, who: str, module: str, scene: str) -> None:
    """Run a scene in a process of its own and fail with what it said."""
    argv = [interpreter(who), "-I", "-B", str(folder / "scenes" / "run.py")]
    argv += [str(folder), module, scene]
    if os.geteuid() == 0:
        if who == "user":
            ids = ["--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
            argv = ["setpriv", *ids, "--", *argv]
        if who == "contained":
            argv = ["setpriv", "--bounding-set=-sys_admin,-net_admin,-sys_ptrace", "--", *argv]
        outside = ["sh", "-ec", OUTSIDE, "outside", str(folder / "tmp-root")]
        # A PID namespace too: a scene sees no strangers, and nothing of it can outlive it.
        kinds = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        argv = ["unshare", *kinds, "--propagation", "slave", "--", *outside, *argv]
    env = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "TMPDIR": str(folder / ("tmp-" + who))}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=SCENE_SECONDS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
