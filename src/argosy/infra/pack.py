"""Builds the agent's .pyz: one file, named by the hash of its sources, in three forms.

The packed agent holds the sources, without what explains them: it runs on any Python from 3.8 on,
and is small enough to travel to a host with every first visit. The compiled agents hold code: they
start in a third of the time, since nothing is compiled. One is for this machine and interpreter;
the other, smaller, travels to hosts whose Python runs the same code as ours.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import sys
import threading
import zipfile
from collections.abc import Callable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from argosy.infra.lean import bare, mark, pyc

SIZE_MAX: Final = 200 * 1024  # of the packed agent, in bytes
TRAVEL_MAX: Final = 400 * 1024  # of the compiled one that travels
MAIN: Final = "import sys\n\nfrom agent.main import main\n\nsys.exit(main())\n"
FIXED_DATE: Final = (1980, 1, 1, 0, 0, 0)  # equal contents make an equal file
_PLACING: Final = threading.Lock()  # many hosts ask at once
FORMS: Final = b"3"  # another number is another name for all that is made here


def packed_agent(folder: Path) -> Path:
    """The agent for other machines, in `folder`; made there unless it is there already."""
    return _placed(folder / f"agent-{_digest()}.pyz", _packed)


def compiled_agent(folder: Path) -> Path:
    """The agent for this machine, in `folder`; made there unless it is there already."""
    return _placed(folder / f"{_code_name()}.pyz", _compiled)


def travelling_agent(folder: Path) -> Path:
    """The compiled agent for other machines, in `folder`; made there unless it is there already."""
    return _placed(folder / f"{_code_name()}.z.pyz", _travelling)


def pod_files(folder: Path) -> dict[str, bytes]:
    """What travels to a pod: the agent, its code under the mark of the Python that runs it, and the
    relay. As `infra/kubernetes/manifests/scripts.py` calls them.
    """
    return {
        "agent.pyz": packed_agent(folder).read_bytes(),
        f"agent.{mark()}.pyz": travelling_agent(folder).read_bytes(),
        "relay.py": relay().encode(),
    }


@functools.cache
def relay() -> str:
    """The program that joins its pipes to an agent (agent/relay.py)."""
    return files("argosy").joinpath("agent", "relay.py").read_text("utf-8")


def _placed(target: Path, body: Callable[[], bytes]) -> Path:
    with _PLACING:
        if target.exists():
            return target
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
        with fresh.open("wb") as file:
            file.write(body())
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave an empty one under its name
        os.rename(fresh, target)
    return target


@functools.cache
def _digest() -> str:
    """Of the sources, and of the forms that are made of them."""
    digest = hashlib.blake2b(FORMS, digest_size=8)
    for name, source in sorted(_sources().items()):
        digest.update(b"%d %d " % (len(name), len(source)) + name.encode() + source)
    return digest.hexdigest()


def _code_name() -> str:
    """Of the compiled agents, without an ending."""
    return f"agent-{_digest()}.{sys.implementation.cache_tag}"


def _packed() -> bytes:
    """The contents of the sources."""
    return _zip({name: bare(source) for name, source in _sources().items()}, zipfile.ZIP_DEFLATED)


def _compiled() -> bytes:
    """The contents of the code for this interpreter, made and loaded in the shortest time."""
    code = {name + "c": pyc(name, source) for name, source in _sources().items()}
    return _zip(code, zipfile.ZIP_STORED)


def _travelling() -> bytes:
    """The same, smaller."""
    code = {name + "c": pyc(name, bare(source), lean=True) for name, source in _sources().items()}
    return _zip(code, zipfile.ZIP_DEFLATED, level=6)


def _zip(entries: Mapping[str, bytes], how: int, level: int = 9) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, entry in sorted(entries.items()):
            archive.writestr(zipfile.ZipInfo(name, FIXED_DATE), entry, how, compresslevel=level)
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
