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
CODE: Final = "code"  # behind `need`
NOT_THERE: Final = 3  # exit status of `attach` where somebody has taken the agent away
NOISE_MAX: Final = 1 << 20  # bytes of start files that are passed over

# Reads the agent from standard input, not one byte more, and puts it in place when it is whole.
RECEIVE: Final = """
import hashlib, os, sys
path, size, digest = sys.argv[1], int(sys.argv[2]), sys.argv[3]
parts = []
while size:
    part = os.read(0, min(size, 65536))
    if not part:
        sys.exit("the agent came in parts only")
    parts.append(part)
    size -= len(part)
body = b"".join(parts)
if hashlib.sha256(body).hexdigest() != digest:
    sys.exit("the agent that came is another one")
fresh = "%s.%d" % (path, os.getpid())
with open(fresh, "wb") as file:
    file.write(body)
    file.flush()
    os.fsync(file.fileno())
os.rename(fresh, path)
"""

# Becomes the desk where this Python runs an agent that is there, and else a shell with the script
# that it was given. Any Python reads this.
AT_ONCE: Final = """
import os, sys
mark, sources, code, python, script, folder, home = sys.argv[1:8]
options = sys.argv[8:]
if sys.version_info >= (3, 8):
    from _frozen_importlib_external import MAGIC_NUMBER
    forms = [sources, code] if MAGIC_NUMBER.hex() == mark else [sources]
    there = [path for path in [folder + "/bin/" + one for one in forms] if os.path.isfile(path)]
    if there:
        sys.stdout.write("have %s\\t%s\\n" % (python, there[0]))
        sys.stdout.flush()
        sys.argv[:] = [there[0], "lease", "--home", folder + "/" + home] + options
        sys.path.insert(0, there[0])
        from agent.main import main
        sys.exit(main())
os.execvp("sh", ["sh", "-c", script, "sh", folder, home] + options)
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
    the agent and goes on), and last `have PYTHON\\tAGENT`, after which the desk speaks. Where the
    agent is there, and `python3` can run it, that one interpreter is all that is started; `quick`
    says that `python3` may be relied upon to start at all.
    """
    sources, code = agents.sources, agents.code
    options = ["--server-id", place.server, "--idle-exit", f"{place.idle_exit:g}"]
    options += ["--address", place.address] if place.address else []
    at_once = shlex.join(["-I", "-S", "-c", AT_ONCE, agents.mark, sources.name, code.name])
    there = f'[ -f "$d/bin/{sources.name}" ] || [ -f "$d/bin/{code.name}" ]'
    return f"""echo {MARK}
d={shlex.quote(place.folder)} h={shlex.quote(place.home)}
case $d in "~/"*) d=$HOME/${{d#??}};; esac
(umask 077; mkdir -p "$d/bin" "$d/$h") 2>/dev/null || {{
  echo "failed $d cannot be made, or written"; exit 0; }}
s={shlex.quote(_by_and_by(agents))}
set -- "$d" "$h" {shlex.join(options)}
if {there if quick else "false"}; then
  p=$(command -v python3 2>/dev/null) && exec "$p" {at_once} "$p" "$s" "$@"
fi
eval "$s"
"""


def _by_and_by(agents: Agents) -> str:
    """The same where a Python has to be found, or the agent to be put there. Its arguments: the
    folder, the home below it, and the desk's options.
    """
    sources, code = agents.sources, agents.code
    return f"""d=$1 h=$2
shift 2
{find()}if [ -z "$p" ]; then echo "none ${{old:+Python $old}}"; exit 0; fi
a=$d/bin/{sources.name} f= s="{len(sources.body)} {sources.digest}"
if [ ! -f "$a" ] && [ "$m" = {agents.mark} ]; then
  a=$d/bin/{code.name} f={CODE} s="{len(code.body)} {code.digest}"
fi
if [ ! -f "$a" ]; then
  echo "need $f"
  e=$("$p" -I -S -c {shlex.quote(RECEIVE)} "$a" $s 2>&1) || {{
    echo "failed the agent cannot be put there: $e" | tr '\\n' ' '; echo; exit 0; }}
fi
printf 'have %s\\t%s\\n' "$p" "$a"
exec "$p" -I -S "$a" lease --home "$d/$h" "$@"
"""
