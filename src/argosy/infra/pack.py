"""Builds the agent's .pyz: one file, named by the hash of what is in it, in two forms.

The packed agent holds the sources: it runs on any Python from 3.8 on, and is small enough to travel
to a host with every first visit. The compiled agent is for this machine and this interpreter: it
starts in half the time, since nothing is compiled, and is never compared with its sources.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import marshal
import os
import sys
import threading
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

SIZE_MAX: Final = 200 * 1024  # of the packed agent, in bytes
MAIN: Final = "import sys\n\nfrom agent.main import main\n\nsys.exit(main())\n"
FIXED_DATE: Final = (1980, 1, 1, 0, 0, 0)  # equal contents make an equal file
UNCHECKED_HASH: Final = 0b01  # PEP 552


def packed_agent(folder: Path) -> Path:
    """The agent for other machines, in `folder`; made there unless it is there already."""
    return _placed(folder, *_packed())


def compiled_agent(folder: Path) -> Path:
    """The agent for this machine, in `folder`; made there unless it is there already."""
    return _placed(folder, *_compiled())


def _placed(folder: Path, name: str, body: bytes) -> Path:
    target = folder / name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = folder / f".{name}.{os.getpid()}.{threading.get_ident()}"
        fresh.write_bytes(body)
        os.rename(fresh, target)
    return target


@functools.cache
def _packed() -> tuple[str, bytes]:
    """(file name, contents) of the sources."""
    body = _zip(_sources())
    return f"agent-{_digest(body)}.pyz", body


@functools.cache
def _compiled() -> tuple[str, bytes]:
    """(file name, contents) of the code for this interpreter."""
    body = _zip({name + "c": _code(name, source) for name, source in _sources().items()})
    return f"agent-{_digest(body)}.{sys.implementation.cache_tag}.pyz", body


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def _zip(entries: Mapping[str, bytes]) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, entry in sorted(entries.items()):
            where = zipfile.ZipInfo(name, FIXED_DATE)
            archive.writestr(where, entry, zipfile.ZIP_DEFLATED, compresslevel=9)
    return body.getvalue()


def _sources() -> dict[str, bytes]:
    return {"__main__.py": MAIN.encode(), **_below(files("argosy").joinpath("agent"), "agent")}


def _below(folder: Traversable, prefix: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        name = f"{prefix}/{entry.name}"
        if entry.name.endswith(".py"):
            found[name] = entry.read_bytes()
        elif entry.name != "__pycache__" and entry.is_dir():
            found |= _below(entry, name)
    return found


def _code(name: str, source: bytes) -> bytes:
    """A .pyc that is never compared with its source."""
    code = compile(source, name, "exec", dont_inherit=True)
    flags = UNCHECKED_HASH.to_bytes(4, "little")
    checked = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + flags + checked + marshal.dumps(code)
