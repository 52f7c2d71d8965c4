"""The words that task files share with SkyPilot, and what they mean here.

Keys of older and newer versions are named as such; words that stand in the wrong place are told
where they belong; `job_recovery` and `service` are turned into `restart` and `ready`.
"""

from __future__ import annotations

import math
from typing import Any, Final

from argosy.model.spec import Probe, Ready, Restart
from argosy.spec.keys.shapes import Fields
from argosy.spec.source.file import Node, Scalar, native
from argosy.spec.source.notes import Mark, Notes

# Keys that are known, but not here: (where, key) -> what to do about it.
_MOVE: Final[dict[tuple[str, str], str]] = {
    ("task", "ports"): "move it below `resources`: `resources: {ports: ...}`",
    ("task", "execution"): "it belongs in the header: the first document, before the first task",
    ("task", "primary_tasks"): "it belongs in the header, the first document of the file",
    ("task", "termination_delay"): "it belongs in the header, the first document of the file",
    ("task", "inter_connection"): "it belongs in the header, the first document of the file",
    ("task", "on_failure"): "it belongs in the header; a task has `restart`",
    ("task", "restarts"): "it belongs in the header; a task has `restart: {max: N}`",
    ("task", "start_timeout"): "it belongs in the header, the first document of the file",
    ("task", "max_duration"): "it belongs in the header, the first document of the file",
    ("task", "priority"): "move it to the header, or below `resources`",
    ("task", "readiness_probe"): "write `ready: {http: /path, port: N}`",
    ("task", "job_recovery"): "move it below `resources`, or write `restart`",
    ("task", "env"): "the key is `envs`",
    ("task", "type"): "volumes have files of their own; a task names one: `volumes: {/path: NAME}`",
    ("task", "size"): "volumes have files of their own; a task names one: `volumes: {/path: NAME}`",
    ("task", "command"): "the key is `run`",
    ("resources", "num_nodes"): "move it one level up: it is a key of the task, beside `resources`",
    ("resources", "hooks"): "it is `config: {hooks: ...}` of the task",
    ("resources", "envs"): "move it one level up: it is a key of the task, beside `resources`",
    ("resources", "run"): "move it one level up: it is a key of the task, beside `resources`",
    ("resources", "setup"): "move it one level up: it is a key of the task, beside `resources`",
    ("resources", "file_mounts"): "move it one level up, beside `resources`",
    ("resources", "workdir"): "move it one level up, beside `resources`",
    ("resources", "restart"): "move it one level up: it is a key of the task, beside `resources`",
    ("ready", "path"): "write `http: /path`",
    ("ready", "initial_delay_seconds"): "the key is `start_period`",
    ("ready", "timeout_seconds"): "the key is `timeout`",
    ("restart", "max_restarts_on_errors"): "write `on: [failure, lost]` and `max: N`",
    ("restart", "recover_on_exit_codes"): "write the codes into `on`: `on: [33, 34]`",
    ("restart", "strategy"): "leave it out; `infra: *` lets a replacement go anywhere",
}  # fmt: skip
for _word in ("accelerators", "cpus", "memory", "infra", "cloud", "region", "use_spot", "image_id"):
    _MOVE["task", _word] = f"move it below `resources`: `resources: {{{_word}: ...}}`"

_OTHER_VERSIONS: Final[dict[tuple[str, str], str]] = {
    ("service", "https"): "write `tls: {keyfile, certfile}`; `https` is a word of older versions",
    ("service", "auth"): "leave it out; groups serve no public endpoint",
    ("task", "termination_hook"): "use `grace` and trap SIGTERM in `run`",
    ("task", "preemption"): "use `restart`; a lost host is replaced by itself",
    ("resources", "termination_hook"): "use `grace` and trap SIGTERM in `run`",
    ("resources", "preemption"): "use `restart`; a lost host is replaced by itself",
    ("task", "experimental"): "write `config`; `experimental` is a word of older versions",
    ("task", "depends"): "the key is `depends_on`",
    ("task", "storage"): "use `file_mounts`; `storage` is a word of older versions",
    ("resources", "spot_recovery"): "write `job_recovery`, or `restart` beside `resources`",
    ("resources", "gpu"): "write `accelerators`",
    ("resources", "vcpus"): "write `cpus`",
    ("resources", "mem"): "write `memory`",
    ("resources", "accelerator"): "write `accelerators`",
}


def explain_key(what: str, key: Scalar, notes: Notes) -> bool:
    """Whether `key` is a known word that does not belong to a `what`; then an error is noted."""
    moved = _MOVE.get((what, key.text))
    if moved:
        notes.error(key.mark, "misplaced-key", f"`{key.text}` is not a key of {_said(what)}", moved)
        return True
    other = _OTHER_VERSIONS.get((what, key.text))
    if other:
        text = f"`{key.text}` is a key of another version of this format"
        notes.error(key.mark, "other-version", text, other)
    return other is not None


def _said(what: str) -> str:
    return {"task": "a task", "resources": "`resources`"}.get(what, f"`{what}`")


def teller(what: str) -> Any:
    """An `unknown` function for a record named `what`."""

    def tell(key: Scalar, value: Node, about: str, notes: Notes) -> bool:
        return explain_key(what, key, notes)

    return tell


def restart_of(recovery: Any, mark: Mark, base: Restart, notes: Notes) -> Restart | None:
    """`job_recovery`, read as a name or as Fields, as a restart; None when it says nothing."""
    if isinstance(recovery, str):
        return _named(recovery, mark, base, notes)
    if not isinstance(recovery, Fields):
        return None
    named = _named(str(recovery.get("strategy", "")), recovery.mark("strategy"), base, notes)
    most = recovery.get("max_restarts_on_errors")
    codes: tuple[int, ...] = recovery.get("recover_on_exit_codes", ())
    if most and codes:
        notes.warn(
            recovery.mark("recover_on_exit_codes"),
            "recovery-codes",
            "restarts for these exit codes count towards `max_restarts_on_errors`",
            f"for restarts without limit: `restart: {{on: [{', '.join(map(str, codes))}, lost]}}`",
        )
    return Restart(
        on_failure=bool(most),
        on_codes=tuple(dict.fromkeys(codes)),
        on_lost=named.on_lost if named else True,
        max=most or None,
        scope=base.scope,
    )


def _named(name: str, mark: Mark, base: Restart, notes: Notes) -> Restart | None:
    if name.lower() in ("none", "no", "off"):
        return Restart(on_lost=False, scope=base.scope)
    known = ("", "failover", "eager_next_region", "eager_failover")
    if name.lower() not in known:
        notes.warn(
            mark, "recovery-strategy",
            f"`{name}` is no recovery strategy that Argosy knows; a lost host is replaced at the"
            " best place that there is",
            "write `restart: {on: [lost]}`",
        )  # fmt: skip
    return base


def ready_of(service: Fields, ports: tuple[str, ...]) -> tuple[Ready | None, tuple[str, ...]]:
    """The probe that `service.readiness_probe` means, and sentences on what is left out.

    `ports` are those of the task's resources: the first is used when the service names none.
    """
    said = _service_sentences(service)
    probe = service.get("readiness_probe")
    if probe is None:
        return None, said
    port = int(service.get("ports") or _first_port(ports))
    if not port:
        return None, (*said, "`service.readiness_probe` has no port to ask: add `service.ports`")
    fields = probe if isinstance(probe, Fields) else None
    path = str(fields.get("path", "/") if fields else probe)
    if not fields:
        return Ready(Probe.HTTP, port, _rooted(path), timeout=15.0, start_period=1200.0), said
    interval = float(fields.get("endpoint_probe_interval_seconds") or 1.0)
    patience = float(fields.get("consecutive_failure_threshold_timeout") or 0.0)
    asks = "post_data" in fields or "headers" in fields
    if asks:
        said = (*said, "`post_data` and `headers` of `service.readiness_probe` are not sent: the"
                f" task counts as ready when port {port} accepts connections")  # fmt: skip
    return Ready(
        kind=Probe.TCP if asks else Probe.HTTP,
        port=port,
        path="/" if asks else _rooted(path),
        interval=interval,
        timeout=float(fields.get("timeout_seconds") or 15.0),
        failures=max(math.ceil(patience / interval), 1) if patience else 3,
        start_period=float(fields.get("initial_delay_seconds", 1200.0)),
    ), said


def _rooted(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def _first_port(ports: tuple[str, ...]) -> str:
    return ports[0].partition("-")[0] if ports else "0"


def _service_sentences(service: Fields) -> tuple[str, ...]:
    said = []
    replicas = service.get("replicas") or service.get("replica_policy")
    if replicas:
        said.append(
            "`service.replicas` and `replica_policy` start nothing in a group: use `num_nodes` and"
            " `balance`"
        )
    for key in ("load_balancing_policy", "load_balancer", "tls", "workers", "pool"):
        if key in service:
            said.append(f"`service.{key}` is not carried out: `balance` shares connections out")
    return tuple(said)


def legacy_placement(node: Node, notes: Notes) -> None:
    """Warn of `placement`, a header word of an early version."""
    notes.warn(
        node.mark,
        "legacy-placement",
        f"`placement: {native(node)}` is a word of an early version, and is ignored",
        "remove it; `inter_connection: true` asks for names that work between all tasks",
    )
