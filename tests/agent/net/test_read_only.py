"""Where /proc/sys cannot be written, as in many containers, nodes could not reach each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.agent.rig import DEADLINE, SOURCE

SCRIPT = """
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys &&
exec "$1" -c "$2" facts --shared "$3"
"""
MAIN = "import sys; from argosy.agent.main import main; main(sys.argv[1:])"


def test_a_trial_finds_that_nothing_would_be_passed_on(tmp_path) -> None:
    """And says so, instead of making networks of which each node is alone."""
    own = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    done = subprocess.run(
        [*own, "sh", "-c", SCRIPT, "sh", sys.executable, MAIN, str(tmp_path)],
        capture_output=True, text=True, timeout=DEADLINE, cwd=SOURCE.parents[1],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    network = json.loads(done.stdout)["network"]
    assert network["mode"] == "host"
    assert network["failed_step"] == "links"
    assert "ead-only" in network["reason"]
