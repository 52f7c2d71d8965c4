"""`doctor`: looks at everything a launch needs here, one line each, with what would mend it."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

import argosy
from argosy.cli.options import emit_json, emit_lines, output_option
from argosy.cli.screen.paint import Paint, paint_for, say
from argosy.errors import ArgosyError
from argosy.sdk.client import Client
from argosy.sdk.home import home_folder, log_file, socket_file
from argosy.sdk.lost import MENDING, lost_server, lost_text
from argosy.sdk.start import answers, last_words
from argosy.sdk.wire import PATH_BYTES_MOST, NoServer
from argosy.views.text import duration, plural, size

DISK_LOW_BYTES = 1 << 30
MARKS = {"ok": "green", "warn": "yellow", "bad": "red"}
LOGS_LINES = 400
LAUNCHER = "argosy-attempt"  # what an agent's launcher and the wrappers call themselves


@dataclass(frozen=True, slots=True)
class Finding:
    """One look: `ok`, `warn` or `bad`, a sentence, and instructions."""

    what: str
    state: str
    text: str
    hints: tuple[str, ...] = ()


@click.command()
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False),
    metavar="FILE.tar.gz",
    help="Write what a report needs: findings, versions, the end of the server's log.",
)
@output_option("table", "json")
def doctor(bundle: str | None, output: str) -> int:
    """Look for what is wrong or missing here. Exits 1 when something must be mended."""
    home = home_folder()
    findings = [finding for look in LOOKS for finding in look(home)]
    if bundle is not None:
        _write_bundle(Path(bundle), home, findings)
        say(f"argosy: wrote {bundle}; read it before you send it")
    if output == "json":
        emit_json([asdict(one) for one in findings])
    else:
        emit_lines(finding_lines(findings, paint_for(sys.stdout)))
    return 1 if any(one.state == "bad" for one in findings) else 0


def finding_lines(findings: Iterable[Finding], paint: Paint) -> list[str]:
    """One line each, hints below."""
    lines = []
    for one in findings:
        lines.append(f"{paint(f'{one.state:<4}', MARKS[one.state])} {one.what:<8} {one.text}")
        lines += [f"     {paint('hint:', 'cyan')} {hint}" for hint in one.hints]
    return lines


def _python(_home: Path) -> list[Finding]:
    kernel = platform.release()
    text = f"Python {platform.python_version()}, argosy {argosy.__version__}, Linux {kernel}"
    found = [Finding("python", "ok", text)]
    if shutil.which("bash") is None:
        hint = "install bash: `run` and `setup` are bash scripts"
        found.append(Finding("bash", "bad", "there is no bash on the PATH", (hint,)))
    return found


def _home(home: Path) -> list[Finding]:
    if not home.exists():
        parent = next(one for one in home.parents if one.exists())
        if os.access(parent, os.W_OK):
            return [Finding("home", "ok", f"{home} is made when it is needed")]
        hint = "set `ARGOSY_HOME` to a folder that you may write"
        return [Finding("home", "bad", f"{home} can't be made: {parent} is read-only", (hint,))]
    found = []
    mode = stat.S_IMODE(home.stat().st_mode)
    if not os.access(home, os.W_OK | os.X_OK):
        hint = f"`chmod u+rwx {home}`, or set `ARGOSY_HOME` to another folder"
        found.append(Finding("home", "bad", f"{home} can't be written", (hint,)))
    elif mode & 0o077:
        hint = f"`chmod 700 {home}`"
        found.append(Finding("home", "warn", f"others can look into {home} ({mode:o})", (hint,)))
    else:
        found.append(Finding("home", "ok", f"{home}, mode {mode:o}"))
    if len(os.fsencode(socket_file(home))) > PATH_BYTES_MOST:
        text = "its path is long for a unix socket; Argosy goes through the opened folder"
        found.append(Finding("home", "ok", text))
    return found


def _disk(home: Path) -> list[Finding]:
    there = next(one for one in (home, *home.parents) if one.exists())
    usage, inodes = shutil.disk_usage(there), os.statvfs(there)
    free = f"{size(usage.free)} of {size(usage.total)} free"
    if usage.free < DISK_LOW_BYTES:
        hint = "free some: `argosy rm GROUP` forgets ended groups and their logs"
        return [Finding("disk", "bad", free, (hint,))]
    if inodes.f_files and inodes.f_favail < 10_000:
        hint = "remove small files: the file system has no room for more of them"
        return [Finding("disk", "bad", f"only {inodes.f_favail} more files fit", (hint,))]
    return [Finding("disk", "ok", free)]


def _server(home: Path) -> list[Finding]:
    client = Client(home, start=False, timeout=5.0)
    before = time.monotonic()
    try:
        view = client.server()
    except NoServer:
        return [_no_server(home)]
    except ArgosyError as error:
        return [Finding("server", "bad", error.text, _unwell(home))]
    took = time.monotonic() - before
    text = (
        f"pid {view.pid}, up {duration(max(0.0, time.time() - view.started_at))}, "
        f"{plural(view.groups, 'group')} alive, {size(view.rss_bytes)}, "
        f"answers in {took * 1000:.0f} ms"
    )
    if view.version != argosy.__version__:
        hint = "`argosy server stop`; the next command starts this version, groups go on"
        text = f"it is version {view.version}, and this is {argosy.__version__}"
        return [Finding("server", "warn", text, (hint,))]
    mode = stat.S_IMODE(socket_file(home).stat().st_mode)
    if mode & 0o077:
        hint = f"`chmod 600 {socket_file(home)}`"
        return [Finding("server", "bad", f"others may use its socket ({mode:o})", (hint,))]
    return [Finding("server", "ok", text)]


def _no_server(home: Path) -> Finding:
    if (pid := lost_server(home)) is not None:
        return Finding("server", "bad", lost_text(pid), (MENDING,))
    if not socket_file(home).exists():
        return Finding("server", "ok", "none runs; the first command that needs one starts it")
    words = last_words(home, 1)
    told = f"; its last words: {words}" if words else ""
    text = f"none runs, but it left its socket: it did not end by itself{told}"
    return Finding("server", "warn", text, ("any command that needs a server mends that",))


def _unwell(home: Path) -> tuple[str, ...]:
    return (f"look into {log_file(home)}", "`argosy server stop`, or kill its process")


def _infra(home: Path) -> list[Finding]:
    if not _answers(home):
        if lost_server(home) is not None:
            return [Finding("network", "ok", "not tried: the server cannot be asked")]
        hint = "`argosy infra check` starts a server and tries the network"
        return [Finding("network", "ok", "not tried: no server runs", (hint,))]
    try:
        infras = Client(home, start=False).infras()
    except ArgosyError as error:
        return [Finding("infra", "bad", error.text, error.hints)]
    found = []
    for one in infras:
        facts = ", ".join(f"{key} {value}" for key, value in one.get("facts", ()))
        problems = "; ".join(text.partition("\n")[0] for text in one.get("problems", ()))
        state = "bad" if not one["works"] else ("warn" if problems else "ok")
        text = ": ".join(filter(None, (one["name"], problems or facts or "works")))
        found.append(Finding("infra", state, text, tuple(one.get("hints", ()))))
    return found


def _answers(home: Path) -> bool:
    """Whether its server may be asked; one that refuses is told elsewhere."""
    try:
        return answers(home)
    except ArgosyError:
        return False


def _leftovers(home: Path) -> list[Finding]:
    """Processes of this home that no server watches now."""
    marked = [pid for pid in _pids() if _about(pid, home)]
    if not marked:
        return [Finding("left", "ok", "no process of this home runs")]
    shown = ", ".join(map(str, marked[:8])) + (" ..." if len(marked) > 8 else "")
    text = f"processes of this home: {len(marked)} (pid {shown})"
    if _answers(home) or lost_server(home) is not None:
        return [Finding("left", "ok", text)]
    if _idle(marked):
        text = f"an agent with nothing to do runs (pid {shown}); it ends by itself"
        return [Finding("left", "ok", text)]
    hint = "`argosy status` starts a server that finds them again; `argosy cancel GROUP` ends them"
    return [Finding("left", "warn", f"{text}, and no server watches them", (hint,))]


def _idle(marked: list[int]) -> bool:
    """Whether these are agents and their launchers only: a wrapper has another parent."""
    about = {pid: _name_and_parent(pid) for pid in marked}
    agents = {pid for pid, (name, _) in about.items() if name != LAUNCHER}
    return all(pid in agents or parent in agents for pid, (_, parent) in about.items())


def _name_and_parent(pid: int) -> tuple[str, int]:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return "", 0
    return name, int(rest.split()[1])


def _pids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _about(pid: int, home: Path) -> bool:
    """Whether a process was started with a folder of this home on its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    mine = os.fsencode(home)
    return pid != os.getpid() and any(
        word == mine or word.startswith(mine + b"/") for word in words
    )


def _write_bundle(path: Path, home: Path, findings: list[Finding]) -> None:
    """A small archive without secrets: no group files, no environment, no program output."""
    import io
    import tarfile

    parts = {
        "findings.txt": "\n".join(finding_lines(findings, Paint(False))),
        "server.log": last_words(home, LOGS_LINES),
        "platform.txt": f"{platform.platform()}\n{sys.version}\nargosy {argosy.__version__}\n",
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, text in parts.items():
            data = text.encode()
            member = tarfile.TarInfo(f"argosy-report/{name}")
            member.size, member.mtime = len(data), int(time.time())
            archive.addfile(member, io.BytesIO(data))


LOOKS: tuple[Callable[[Path], list[Finding]], ...] = (
    _python, _home, _disk, _server, _infra, _leftovers,
)  # fmt: skip
