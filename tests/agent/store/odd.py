"""A folder with everything that is hard to carry, and what can be seen of one."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def odd_folder(top: Path) -> Path:
    """Links, modes, empty folders, read-only ones, spaces, names that are not UTF-8."""
    for name, body in {
        "main.py": b"print(1)\n", "empty": b"", "a b/c  d.txt": b"spaces\n",
        "bin/run": b"#!/bin/sh\n",
        "closed/inner/deep": b"deep\n", "twice": b"deep\n", "large.bin": bytes(range(256)) * 9000,
        "new\nline": b"line\n", ".hidden": b"h\n",
    }.items():  # fmt: skip
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    (top / os.fsdecode(b"caf\xe9-\xff")).write_bytes(b"latin\n")
    (top / "nothing" / "below").mkdir(parents=True)
    (top / "link").symlink_to("main.py")
    (top / "broken").symlink_to("/no/such/place")
    (top / "folder-link").symlink_to("a b")
    (top / "bin/run").chmod(0o755)
    (top / "main.py").chmod(0o640)
    (top / "closed/inner/deep").chmod(0o400)
    (top / "closed/inner").chmod(0o555)
    (top / "closed").chmod(0o500)
    os.utime(top / "main.py", ns=(10**18 + 7, 10**18 + 7))
    return top


def seen(top: Path | str) -> dict[bytes, tuple[object, ...]]:
    """Everything below a folder: kind, mode, contents or target, time of change of files."""
    found: dict[bytes, tuple[object, ...]] = {}
    root = os.fsencode(top)
    for folder, names, files in os.walk(root):
        for name in names + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                about: tuple[object, ...] = ("link", os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                about = ("folder", mode)
            else:
                with open(path, "rb") as file:
                    about = ("file", mode, file.read(), status.st_mtime_ns)
            found[os.path.relpath(path, root)] = about
    return found
