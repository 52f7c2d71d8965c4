"""What the kernel says of memory: the counters and limits of cgroups of both versions."""

from __future__ import annotations

import pytest

from argosy.agent import facts

MIB = 1 << 20


def put(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def said(tmp_path, cgroup, files):
    of = tmp_path / "of"
    of.write_text(cgroup)
    root = tmp_path / "fs"
    put(root, files)
    return facts.oom_kills(str(root), str(of)), facts.memory_words(str(root), str(of))


SECOND = {"memory.max": f"{512 * MIB}\n", "memory.peak": f"{511 * MIB}\n"}
FIRST = {
    "memory.limit_in_bytes": f"{64 * MIB}\n",
    "memory.max_usage_in_bytes": f"{63 * MIB}\n",
}


def test_a_container_of_version_2_counts_for_itself(tmp_path):
    files = {**SECOND, "memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 1\n"}
    words = "the limit is 512 MiB, the peak was 511 MiB"
    assert said(tmp_path, "0::/\n", files) == (2, words)


def test_a_session_of_version_2_has_a_folder_of_its_own(tmp_path):
    files = {"user.slice/a/" + key: text for key, text in SECOND.items()}
    files["user.slice/a/memory.events"] = "oom_kill 5\n"
    assert said(tmp_path, "0::/user.slice/a\n", files)[0] == 5


def test_a_container_of_version_1_is_the_root_of_what_it_sees(tmp_path):
    """/proc tells the path on the machine, which is not there."""
    files = {"memory/" + key: text for key, text in FIRST.items()}
    files["memory/memory.oom_control"] = "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"
    words = "the limit is 64 MiB, the peak was 63 MiB"
    cgroup = "5:cpu,cpuacct:/pods/x\n4:memory:/pods/x\n0::/\n"
    assert said(tmp_path, cgroup, files) == (7, words)


@pytest.mark.parametrize("limit", ["max\n", f"{1 << 62}\n"])
def test_no_limit_has_no_words(tmp_path, limit):
    files = {"memory.max": limit, "memory.peak": "1\n", "memory.events": "oom_kill 0\n"}
    assert said(tmp_path, "0::/\n", files) == (0, "")


def test_where_no_cgroup_counts_the_machine_does(tmp_path):
    of = tmp_path / "of"
    of.write_text("0::/\n")
    whole = facts.oom_kills(str(tmp_path / "nothing"), str(of))
    with open("/proc/vmstat") as file:
        counted = [int(line.split()[1]) for line in file if line.startswith("oom_kill ")]
    assert whole <= sum(counted)
    assert facts.memory_words(str(tmp_path / "nothing"), str(of)) == ""
