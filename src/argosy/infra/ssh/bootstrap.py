"""The scripts that make a host ready: Python found, the agent there by its hash, its desk open.

One script does it all in one round trip where the agent is there already; else it asks for the
agent's bytes in between: for its code, where the Python there runs code that ours has compiled.
Before its first word a script writes a mark: what a login shell's start files print comes before
that, and is passed over.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argosy.infra import pack
from argosy.infra.interpreter import find
from argosy.infra.lean import mark

MARK: Final = "argosy:here"
ATTACHED: Final = "argosy:attached"
CODE: Final = "code"  # behind `need`, as PROGRAM says it
NOT_THERE: Final = 3  # exit status of `attach` where somebody has taken the agent away
NOISE_MAX: Final = 1 << 20  # bytes of start files that are passed over

# Becomes the desk; an agent that is not there is asked for, read from standard input, not one byte
# more, and put in place when it is whole. A Python that is too old becomes a shell with the script
# that it was given, which looks for another one. Any Python reads this.
PROGRAM: Final = """
import os, sys
python, search, myself, folder, home, mark = sys.argv[1:7]
sources, code, options = sys.argv[7:10], sys.argv[10:13], sys.argv[13:]
if sys.version_info < (3, 8):
    os.execvp("sh", ["sh", "-c", search, "sh"] + sys.argv[3:])
from _frozen_importlib_external import MAGIC_NUMBER

def say(word, rest):
    sys.stdout.write(word + " " + rest + "\\n")
    sys.stdout.flush()

def put(path, size, digest):
    try:
        from _sha256 import sha256  # hashlib takes 3 ms to load OpenSSL
    except ImportError:  # Python >= 3.12
        from hashlib import sha256
    parts = []
    while size:
        part = os.read(0, min(size, 65536))
        if not part:
            raise ValueError("it came in parts only")
        parts.append(part)
        size -= len(part)
    body = b"".join(parts)
    if sha256(body).hexdigest() != digest:
        raise ValueError("another one came")
    fresh = "%s.%d" % (path, os.getpid())
    try:
        with open(fresh, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.rename(fresh, path)
    except OSError:
        if os.path.exists(fresh):
            os.unlink(fresh)
        raise

forms = [sources, code] if MAGIC_NUMBER.hex() == mark else [sources]
paths = [os.path.join(folder, "bin", name) for name, _, _ in forms]
agent = next((path for path in paths if os.path.isfile(path)), "")
if not agent:
    agent, (_, size, digest) = paths[-1], forms[-1]
    say("need", "code" if forms[-1] is code else "")
    try:
        put(agent, int(size), digest)
    except (OSError, ValueError) as error:
        say("failed", "the agent cannot be put there: %s" % error)
        sys.exit(0)
say("have", python + "\\t" + agent)
sys.argv[:] = [agent, "lease", "--home", os.path.join(folder, home)] + options
sys.path.insert(0, agent)
from agent.main import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Agent:
    """One form of the packed agent, as it travels."""

    name: str  # holds the hash of its contents
    body: bytes
    digest: str  # of its bytes, as the host checks it

    @classmethod
    def of(cls, path: Path) -> Agent:
        """The one in that file. Blocks."""
        body = path.read_bytes()
        return cls(path.name, body, hashlib.sha256(body).hexdigest())


@dataclass(frozen=True, slots=True)
class Agents:
    """Both forms: sources for any Python, and code for those with that mark."""

    sources: Agent
    code: Agent
    mark: str

    @classmethod
    def packed(cls, folder: Path) -> Agents:
        """As this Argosy has them, made in `folder`. Blocks."""
        code = Agent.of(pack.travelling_agent(folder))
        return cls(Agent.of(pack.packed_agent(folder)), code, mark())

    def asked(self, form: str) -> Agent:
        """The one that a host needs, by the word behind `need`."""
        return self.code if form == CODE else self.sources


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent lives on a host. `~` is the user's home there."""

    folder: str  # for all servers of that user
    home: str  # below it: of this server, pool and host
    server: str
    idle_exit: float  # seconds
    address: str = ""  # at which other hosts reach it; "": it finds out itself


@dataclass(frozen=True, slots=True)
class Ready:
    """What is known of a host that was made ready."""

    python: str  # its path there
    agent: str  # the path of the packed agent
    home: str  # the agent's home, absolute

    def attach(self) -> str:
        """The script that joins its pipes to the agent; ATTACHED is its first word."""
        words = [self.python, "-I", "-S", "-c", pack.relay(), self.home, ATTACHED]
        there = f"[ -f {shlex.quote(self.agent)} ] || exit {NOT_THERE}"
        return f"{there}\nexec {shlex.join(words)}\n"


def opening(agents: Agents, place: Place, *, quick: bool = True) -> str:
    """The script that makes a host ready and becomes the desk (agent/leases/desk.py).

    It writes MARK, then one of `none OLD`, `failed TEXT`, `need FORM` (then it reads that form of
    the agent and goes on), and last `have PYTHON\\tAGENT`, after which the desk speaks. One
    interpreter does all that, where `python3` can run the agent; `quick` says that `python3` may be
    relied upon to start at all.
    """
    options = ["--server-id", place.server, "--idle-exit", f"{place.idle_exit:g}"]
    options += ["--address", place.address] if place.address else []
    forms = [
        word
        for form in (agents.sources, agents.code)
        for word in (form.name, str(len(form.body)), form.digest)
    ]
    at_once = 'p=$(command -v python3 2>/dev/null) && exec "$p" -I -S -c "$1" "$p" "$s" "$@"'
    return f"""echo {MARK}
d={shlex.quote(place.folder)} h={shlex.quote(place.home)} s={shlex.quote(_search())}
case $d in "~/"*) d=$HOME/${{d#??}};; esac
(umask 077; mkdir -p "$d/bin" "$d/$h") 2>/dev/null || {{
  echo "failed $d cannot be made, or written"; exit 0; }}
set -- {shlex.quote(PROGRAM)} "$d" "$h" {shlex.join([agents.mark, *forms, *options])}
{at_once if quick else ""}
eval "$s"
"""


def _search() -> str:
    """A script for when `python3` is not the one: its arguments are PROGRAM and what follows that
    on the command line, both for the Python that it finds.
    """
    return f"""{find()}[ -n "$p" ] || {{ echo "none ${{old:+Python $old}}"; exit 0; }}
exec "$p" -I -S -c "$1" "$p" "" "$@"
"""
