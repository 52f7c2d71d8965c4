"""One task document, read and checked by itself, as a TaskSpec."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from argosy.model.spec import (
    Condition,
    EndsWith,
    Probe,
    Ready,
    Restart,
    Scope,
    TaskSpec,
)
from argosy.spec.keys.model import TASK
from argosy.spec.keys.shapes import Fields
from argosy.spec.keys.skypilot import ready_of, restart_of
from argosy.spec.mounts import Folders, mounts_of, volumes_of, workdir_of
from argosy.spec.needs import Wanted, wanted_of
from argosy.spec.overrides import Overrides
from argosy.spec.source.file import Map, Scalar, absent
from argosy.spec.source.notes import Mark, Notes
from argosy.spec.variables import Variables, substituted

_SUBSTITUTED: Final = ("workdir", "file_mounts", "volumes", "service")
_LEFT_OUT: Final = {
    "config": "overrides of a client's configuration mean nothing here",
    "event_callback": "no callback is run; `argosy events GROUP -f` tells what happens",
    "api_server_access": "a task gets no access to the server",
    "managed_secrets": "this version keeps no secrets: give them with `--secret NAME`",
    "inputs": "sizes of inputs are not used for placement",
    "outputs": "sizes of outputs are not used for placement",
}


@dataclass(frozen=True, slots=True)
class Draft:
    """A task that was read: its spec so far, and where its words stand, for the rules."""

    spec: TaskSpec
    fields: Fields
    depends: tuple[tuple[Scalar, str], ...] = ()  # as written; "" where no condition was
    along: tuple[str, ...] = ()
    priority: int | None = None  # of its resources

    def mark(self, key: str) -> Mark:
        """Where the value of `key` stands; where the task begins when it is missing."""
        return self.fields.mark(key)


def draft(
    document: Map,
    name: str,
    variables: Variables,
    *,
    overrides: Overrides,
    folders: Folders,
    notes: Notes,
) -> Draft | None:
    """The task of a document. `name` is used when it has none. None: it could not be read."""
    fields = TASK.read(_with_values(document, variables, notes), "", notes)
    if fields is None:
        return None
    wanted = wanted_of(fields.get("resources"), overrides, notes)
    num_nodes = int(fields.get("num_nodes", 1))
    mark = fields.mark("workdir")
    workdir = workdir_of(fields.get("workdir"), mark, folders, notes)
    mounts, said_mounts = mounts_of(fields.get("file_mounts", ()), folders, notes)
    ready, said_service = _ready(fields, wanted, notes)
    spec = TaskSpec(
        name=str(fields.get("name", name)),
        num_nodes=num_nodes,
        needs=wanted.needs,
        needs_ordered=wanted.ordered,
        envs=tuple(variables.envs.items()),
        secrets=tuple(variables.secrets.items()),
        workdir=workdir,
        file_mounts=mounts,
        volumes=volumes_of(fields.get("volumes", ()), notes),
        setup=str(fields.get("setup", "")),
        run=str(fields.get("run", "")),
        ready=ready,
        restart=_restart(fields, wanted, num_nodes, notes),
        balance=_balance(fields, notes),
        grace=float(fields.get("grace", 30.0)),
        ends_with=EndsWith(fields.get("ends_with", "all")),
        strict=bool(fields.get("strict", False)),
        launcher=str(fields.get("launcher", "")),
        not_carried_out=tuple(map(notes.shown, (
            *wanted.sentences, *said_mounts, *said_service,
            *(f"`{key}`: {text}" for key, text in _LEFT_OUT.items() if _asks(fields, key)),
        ))),
    )  # fmt: skip
    _lint(spec, fields, notes)
    return Draft(spec, fields, fields.get("depends_on", ()), spec.restart.along, wanted.priority)


def with_conditions(task: TaskSpec, depends: tuple[tuple[str, Condition], ...]) -> TaskSpec:
    """The task with what it waits for."""
    return replace(task, depends_on=depends)


def _with_values(document: Map, variables: Variables, notes: Notes) -> Map:
    """The document with variables put in where the format says so."""
    return Map(
        document.mark,
        [
            (key, substituted(value, key.text, variables, notes))
            if key.text in _SUBSTITUTED
            else (key, value)
            for key, value in document.pairs
            if key.text not in ("envs", "secrets")  # were read before, with the overrides
        ],
    )


def _asks(fields: Fields, key: str) -> bool:
    return key in fields and fields.get(key) is not False


def _restart(fields: Fields, wanted: Wanted, num_nodes: int, notes: Notes) -> Restart:
    base = Restart(scope=Scope.TASK if num_nodes > 1 else Scope.NODE)
    own: Fields | None = fields.get("restart")
    recovery = restart_of(wanted.recovery, wanted.recovery_mark, base, notes)
    if own is None:
        return recovery or base
    if wanted.recovery is not None:
        notes.error(
            fields.mark("restart"), "given-twice",
            "`restart` and `resources.job_recovery` are both given",
            "keep `restart`; `job_recovery` is its compatible form",
        )  # fmt: skip
    words: tuple[str, ...] = own.get("on", ("lost",))
    codes = tuple(dict.fromkeys(int(word) for word in words if word.isdigit()))
    _check_restart(own, words, codes, notes)
    first, most = own.get("backoff", (base.backoff_first, base.backoff_most))
    return Restart(
        on_failure="failure" in words,
        on_codes=codes,
        on_lost=bool(words),
        max=own.get("max"),
        backoff_first=first,
        backoff_most=most,
        scope=Scope(own.get("scope", base.scope)),
        along=tuple(dict.fromkeys(own.get("with", ()))),
    )


def _check_restart(
    own: Fields, words: tuple[str, ...], codes: tuple[int, ...], notes: Notes
) -> None:
    if any(code == 0 or code > 255 for code in codes):
        notes.error(
            own.mark("on"), "exit-code", "an exit code that is restarted is from 1 to 255",
            "write `on: [failure]`, or codes such as `on: [33, lost]`",
        )  # fmt: skip
    if "max" in own and not codes and "failure" not in words:
        notes.error(
            own.mark("max"), "restart-max",
            "`max` counts restarts for failures, and `on` names no failure",
            "add `on: [failure, lost]`; lost hosts are replaced without limit",
        )  # fmt: skip


def _balance(fields: Fields, notes: Notes) -> tuple[int, ...]:
    ports: tuple[int, ...] = fields.get("balance", ())
    if len(set(ports)) < len(ports):
        notes.error(
            fields.mark("balance"), "balance-twice", "`balance` names a port twice",
            "name each port once",
        )  # fmt: skip
    return tuple(dict.fromkeys(ports))


def _ready(fields: Fields, wanted: Wanted, notes: Notes) -> tuple[Ready | None, tuple[str, ...]]:
    own: Fields | None = fields.get("ready")
    service: Fields | None = fields.get("service")
    probe, said = ready_of(service, wanted.ports) if service is not None else (None, ())
    if own is None:
        return probe, said
    if probe is not None:
        notes.error(
            fields.mark("ready"), "given-twice",
            "`ready` and `service.readiness_probe` are both given",
            "keep `ready`; `readiness_probe` is its compatible form",
        )  # fmt: skip
    return _own_ready(own, fields, wanted, notes), said


def _own_ready(own: Fields, fields: Fields, wanted: Wanted, notes: Notes) -> Ready | None:
    kinds = [kind for kind in Probe if kind in own]
    asked = [kind for kind in Probe if not absent(own.node.get(kind))]
    if len(asked) != 1:
        notes.error(
            own.node.mark, "ready-kind",
            "`ready` asks in exactly one way, and here are "
            + (" and ".join(f"`{kind}`" for kind in asked) or "none"),
            "write one of `http: /path`, `tcp: 8000`, `command: ...`, `log: 'regex'`",
        )  # fmt: skip
    if len(kinds) != 1 or len(asked) != 1:
        return None
    kind = kinds[0]
    value: Any = own.get(kind)
    if kind is Probe.LOG:
        _check_pattern(value, own.mark("log"), notes)
    path = str(value) if kind is Probe.HTTP else "/"
    return Ready(
        kind=kind,
        port=int(value) if kind is Probe.TCP else _port(own, kind, fields, wanted, notes),
        path=path if path.startswith("/") else f"/{path}",
        text=str(value) if kind in (Probe.COMMAND, Probe.LOG) else "",
        interval=float(own.get("interval", 1.0)),
        timeout=float(own.get("timeout", 2.0)),
        failures=int(own.get("failures", 3)),
        start_period=float(own.get("start_period", 0.0)),
    )


def _port(own: Fields, kind: Probe, fields: Fields, wanted: Wanted, notes: Notes) -> int:
    """The port of an HTTP probe: given, or the only one that the task names."""
    if kind is not Probe.HTTP:
        return 0
    if "port" in own:
        return int(own.get("port"))
    named = list(fields.get("balance", ())) or [int(p) for p in wanted.ports if "-" not in p]
    if len(named) != 1 and absent(own.node.get("port")):
        notes.error(
            own.node.mark, "ready-port", "`ready` does not say which port to ask",
            "write `ready: {http: /health, port: 8000}`",
        )  # fmt: skip
    return int(named[0]) if len(named) == 1 else 0


def _check_pattern(pattern: str, mark: Mark, notes: Notes) -> None:
    if len(pattern.encode("utf-8", "surrogateescape")) > PATTERN_MOST:
        notes.error(
            mark, "regular-expression", f"`log` has more than {PATTERN_MOST} bytes",
            "search for a shorter text that the program prints when it is ready",
        )  # fmt: skip
        return
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        notes.error(
            mark, "regular-expression", f"`log` is not a regular expression: {error}",
            "write it in single quotes, and `\\` before characters such as `(` and `[`",
        )  # fmt: skip


PATTERN_MOST = 16384  # bytes of a regular expression: agents search no larger one
_FOR_EVER = re.compile(
    r"^[ \t]*(?:exec[ \t]+)?(?:sleep[ \t]+infinity|tail[ \t]+-f[ \t]+/dev/null)\b", re.MULTILINE
)
_TRUNCATES = re.compile(r"(?<![>0-9&])[12]?>\s*/dev/std(?:err|out)\b")


def _lint(task: TaskSpec, fields: Fields, notes: Notes) -> None:
    """Warn of what works, but seldom as meant."""
    if not task.run and not task.setup:
        notes.warn(
            fields.node.mark, "no-run",
            f"task `{task.name}` has no `run`, so it is over as soon as it starts",
            "add `run: |` and the script below it",
        )  # fmt: skip
    if _TRUNCATES.search(task.run):
        notes.warn(
            fields.mark("run"), "truncated-log",
            f"task `{task.name}` opens /dev/stdout or /dev/stderr with `>`, which empties its log",
            "write `>&2` or `>> /dev/stderr`",
        )  # fmt: skip


def never_ends(task: TaskSpec) -> bool:
    """Whether the script, as it is written, waits for ever on some nodes."""
    return _FOR_EVER.search(task.run) is not None
