"""Code and files on their way to real SSH hosts: whole, once, and over a link that breaks."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.agent.store.odd import odd_folder
from tests.infra.ssh.person import Person, until

pytestmark = pytest.mark.ssh

# Kind, mode, path and target of everything; then the contents.
LOOK = """cd "$1" && export LC_ALL=C
{ find . -mindepth 1 -printf '%y %m %p %l\\0' | sort -z
  find . -type f -printf '%T@ %p\\0' | sort -z
  find . -type f -print0 | sort -z | xargs -0 sha256sum
} | sha256sum
"""
SMALL_FILES = 10_000
LARGE_MIB = int(os.environ.get("ARGOSY_LARGE_MIB", "64"))  # CI's longer run: 1024
SERVER_MIB_MOST = 250  # of memory, whatever the size of what is sent
HOSTS = 3


def looked(folder: Path) -> str:
    """What LOOK prints of a folder here."""
    words = ["bash", "-c", LOOK, "look", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0]


def a_file(name: str, code: Path, *more: str, mounts: str = "", nodes: int = 1) -> str:
    """A task, each node on a host of its own, that shows its working directory as LOOK does."""
    look = ["look() {", *LOOK.splitlines(), "}", "echo \"tree $(look . | cut -d' ' -f1)\""]
    script = "\n".join(f"  {line}" for line in [*look, *more])
    return (
        f"name: {name}\n---\nname: one\nnum_nodes: {nodes}\nworkdir: {code}\n{mounts}"
        f"resources: {{accelerators: 'H100:8'}}\nrun: |\n{script}\n"
    )


def sent(person: Person, name: str) -> list[tuple[int, int, int]]:
    """(bytes of the files, bytes sent, bytes that were there) of each transfer for a group."""
    events = json.loads(person.argosy("events", name, "-o", "json")[1])
    texts = [one["text"] for one in events if one["code"] == "files-sent"]
    return [tuple(map(int, re.findall(r"(\d+) bytes", text))) for text in texts]  # type: ignore[misc]


def wire_bytes(person: Person) -> int:
    """What has left the laptop by any of its links."""
    lines = person.rig.verb("laptop", "--", "cat", "/proc/net/dev").splitlines()[2:]
    counts = [line.split(":")[1].split() for line in lines if not line.strip().startswith("lo:")]
    return sum(int(one[8]) for one in counts)


def test_code_and_files_travel_whole_and_once(person, tmp_path):
    """Ten thousand small files, and all that is hard to carry, to hosts of root and of others; the
    second launch sends nothing.
    """
    code = odd_folder(tmp_path / "code")
    for number in range(SMALL_FILES):
        path = code / "small" / f"{number % 100:02}" / f"{number}.py"
        if number < 100:
            path.parent.mkdir(parents=True)
        path.write_text(f"# {number}\n" + os.urandom(100).hex())
    key = tmp_path / "key file"
    key.write_text("very secret\n")
    key.chmod(0o400)
    odd_folder(tmp_path / "more")
    mounts = f"file_mounts: {{'~/conf/key': '{key}', '~/odd': '{tmp_path / 'more'}'}}\n"
    text = a_file(
        "first", code,
        "echo \"odd $(look ~/odd | cut -d' ' -f1)\"",
        "cat ~/conf/key; stat -c 'mode %a' ~/conf/key",
        "chmod -R u+w ~/odd; rm -r ~/odd ~/conf",
        mounts=mounts, nodes=HOSTS,
    )  # fmt: skip
    code_of, out, err = person.launch(text)
    assert code_of == 0, out + err
    words = [line.split("] ", 1)[-1] for line in out.splitlines()]
    assert words.count(f"tree {looked(code)}") == HOSTS
    assert words.count(f"odd {looked(tmp_path / 'more')}") == HOSTS
    assert words.count("very secret") == HOSTS
    assert words.count("mode 400") == HOSTS
    first = sent(person, "first")
    assert len(first) == 3 * HOSTS
    before = wire_bytes(person)
    out = person.launch(text.replace("name: first", "name: second"))[1]
    words = [line.split("] ", 1)[-1] for line in out.splitlines()]
    assert words.count(f"tree {looked(code)}") == HOSTS
    assert sent(person, "second") == []
    assert wire_bytes(person) - before < sum(one[0] for one in first) / 100
    person.argosy("server", "stop")
    log = (person.folder / "home" / "server.log").read_text()
    assert "very secret" not in log


def test_one_large_file_travels_whole_and_does_not_fill_the_server(person, tmp_path):
    """`ARGOSY_LARGE_MIB` says how large; beside it a small one, which does not wait for it."""
    code = tmp_path / "code"
    code.mkdir()
    with (code / "weights").open("wb") as file:
        for _ in range(LARGE_MIB):
            file.write(os.urandom(1 << 20))
    (code / "run me").write_text("#!/bin/sh\nstat -c 'size %s' weights\n")
    (code / "run me").chmod(0o755)
    result, out, err = person.launch(a_file("huge", code, "'./run me'"), seconds=LARGE_SECONDS)
    assert result == 0, out + err
    words = [line.split("] ", 1)[-1] for line in out.splitlines()]
    assert f"tree {looked(code)}" in words
    assert f"size {LARGE_MIB << 20}" in words
    pid = json.loads((person.folder / "home" / "server.json").read_text())["pid"]
    status = Path(f"/proc/{pid}/status").read_text()
    assert int(re.search(r"VmHWM:\s+(\d+)", status)[1]) < SERVER_MIB_MOST << 10, status
    (code / "weights").unlink()


LARGE_SECONDS = 120.0 + LARGE_MIB


def test_a_link_that_breaks_in_the_middle_is_gone_on_with(person, tmp_path):
    """What had come is not sent again."""
    code = tmp_path / "code"
    code.mkdir()
    size = 24 << 20
    (code / "large").write_bytes(os.urandom(size))
    for host in ("host-1", "host-2", "host-3"):
        person.rig.verb("slow", host, "--rate", "30mbit")
    try:
        code_of, out, err = person.launch(a_file("large", code), "-d")
        assert code_of == 0, out + err
        until(lambda: percent(person, "large") >= 20, "nothing comes")
        host = person.group("large")["tasks"][0]["nodes"][0]["host"]
        person.rig.verb("cut", host)
        until(lambda: "unreachable" in person.argosy("infra", "check")[1], "nobody notices the cut")
        person.rig.verb("heal", host)
        for one in ("host-1", "host-2", "host-3"):
            person.rig.verb("slow", one)
        until(lambda: person.group("large")["phase"] == "SUCCEEDED", "its files do not come")
    finally:
        for one in ("host-1", "host-2", "host-3"):
            person.rig.verb("slow", one)
    assert f"tree {looked(code)}" in person.argosy("logs", "large")[1]
    ((whole, last, there),) = sent(person, "large")
    assert whole == size
    assert there > size // 10
    assert last < size - size // 10


def percent(person: Person, name: str) -> int:
    """How much of its files is there, as `status` shows it; 0 before that is known."""
    shown = json.dumps(person.group(name))
    found = re.search(r"waits for its files: (\d+) %", shown)
    return int(found[1]) if found else 0
