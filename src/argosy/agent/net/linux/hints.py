"""What the owner of a machine can do when a step of the isolated network is refused."""

from __future__ import annotations

import errno
import os
import shutil
from typing import Optional

MODULES = "modprobe veth nf_tables nft_masq nft_ct tun"


def hint(step: str, number: int) -> str:
    """An instruction for the step that failed with that errno ("" if none is known)."""
    if step in ("unshare", "user-namespace"):
        return _unshare_hint(number)
    if step == "id-maps" or (step == "mounts" and number in (errno.EPERM, errno.EACCES)):
        if _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
            return "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or run the agent as root"
        return "allow user namespaces for this user, or run the agent as root"
    if step == "links":
        return MODULES
    if step == "nft":
        if number == errno.ENOENT:
            return "apt install nftables"
        return MODULES
    if step == "pasta":
        if shutil.which("pasta") and tun_problem():
            return "chmod 0666 /dev/net/tun, or run the agent as root"
        return "apt install passt; or choose a network without a way out"
    return ""


def _unshare_hint(number: int) -> str:
    if number == errno.ENOSPC:
        low = [n for n in ("user", "net", "pid", "mnt", "uts") if _limit(n) < 200]
        names = ["user.max_%s_namespaces" % n for n in low] or ["user.max_net_namespaces"]
        return "raise " + ", ".join("sysctl " + name for name in names)
    if _sysctl("kernel/unprivileged_userns_clone") == "0":
        return "sysctl kernel.unprivileged_userns_clone=1, or run the agent as root"
    if _limit("user") == 0:
        return "raise sysctl user.max_user_namespaces, or run the agent as root"
    return "a container needs --cap-add SYS_ADMIN --security-opt seccomp=unconfined for this"


def tun_problem() -> str:
    """Why pasta could not open its device ("" if it can)."""
    path = "/dev/net/tun"
    if not os.path.exists(path):
        return "%s is missing: modprobe tun" % path
    if not os.access(path, os.R_OK | os.W_OK):
        return "%s is not open to this user: chmod 0666 %s" % (path, path)
    return ""


def _limit(name: str) -> int:
    return int(_sysctl("user/max_%s_namespaces" % name) or 1 << 30)


def _sysctl(name: str) -> Optional[str]:
    try:
        with open("/proc/sys/" + name, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
