"""Groups: plan, launch, look, and everything that a user can ask of one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, ConfigDict, Field

from argosy.control.planning import unknown_infras
from argosy.errors import Conflict, InputError, InputErrors
from argosy.model import codec
from argosy.model.action import Event
from argosy.model.group import Intent, Outcome, Verb
from argosy.model.ids import GroupId
from argosy.model.spec import GroupSpec
from argosy.sdk.launch import missing_paths, user_name
from argosy.server.agents import answered, opened
from argosy.server.answers import FINE, answer, awaited
from argosy.server.context import Context, Here, attempts_of, live_attempt, newest_attempt, node_of
from argosy.server.infra import export
from argosy.server.masking import masked, masked_data, masked_errors
from argosy.server.streams import reasons_of, view_of
from argosy.spec.overrides import Overrides, interpret_pairs
from argosy.spec.parse import Parsed, parse
from argosy.spec.source.notes import Warning_
from argosy.storage.repository import pinned
from argosy.views.explain import explain
from argosy.views.near import near_infras, unknown_infra
from argosy.views.plan import plan_view

router = APIRouter(prefix="/v1", tags=["groups"])

TEXT_MOST: Final = 16 * 2**20  # characters of a file
# The submitter's, too, since only its owner uses a server; "" for a user without one.
USER_HOME: Final = os.path.expanduser("~").removeprefix("~")
EVENTS_SHOWN: Final = 100  # the newest ones that an explanation is made from
LIMIT_MOST: Final = 10_000
LIMIT_USUAL: Final = 1000
FORMS: Final = "docs/api.md has the forms of every request"


class LaunchBody(BaseModel):
    """A file as it was submitted, and what the command line changes about it."""

    model_config = ConfigDict(extra="ignore")

    file: str = "group.yaml"  # how messages name it
    text: str = Field(max_length=TEXT_MOST)
    base: str = "/"  # the folder that relative paths start from
    name: str = ""
    infra: str = ""
    envs: dict[str, str] = {}
    secrets: dict[str, str] = Field(default={}, repr=False)
    environ: dict[str, str] = Field(default={}, repr=False)  # of secrets that the file only names
    set: tuple[str, ...] = ()  # "task.resources.cpus=1"
    no_accelerators: bool = False
    network: str = ""
    replace: bool = False
    user: str = ""
    secrets_later: bool = False  # for a plan: secrets without a value are warnings

    def overrides(self) -> Overrides:
        """What the command line changes, as the parser takes it."""
        return Overrides(
            name=self.name,
            infra=self.infra,
            envs=tuple(self.envs.items()),
            secrets=tuple(self.secrets.items()),
            sets=self.set,
            no_accelerators=self.no_accelerators,
            network=self.network,
            environ=tuple(self.environ.items()),
        )


class ExportBody(LaunchBody):
    """A file, and what it is to be turned into."""

    to: str = "kubernetes"  # the kind of infra
    context: str = ""  # which of that kind; "": the one that a launch would choose
    whole: bool = True  # with the agent's bytes


class CancelBody(BaseModel):
    """How to end a group."""

    now: bool = False  # without grace


class RestartBody(BaseModel):
    """What to restart: the group, a task, or a node."""

    task: str = ""
    index: int | None = Field(None, ge=0)


class ChaosBody(BaseModel):
    """What to break on purpose."""

    what: str
    task: str
    index: int = Field(0, ge=0)


# --- before a group is there ---------------------------------------------------------------------


@router.post("/plan")
async def plan(body: LaunchBody, here: Here) -> Response:
    """Where each node would run, and why; nothing is written."""
    parsed = await _parsed(body, here, secrets_later=body.secrets_later)
    missing = await asyncio.to_thread(missing_paths, parsed)
    _refuse_unknown(here, parsed.spec)
    with masked_errors(parsed.spec):
        code = await pinned(parsed.spec)
        chosen = await here.control.plan(code.spec)
    warnings = (*_sentences(parsed.warnings + missing), *code.warnings)
    view = plan_view(code.spec, chosen, warnings)
    told = codec.encode(replace(view, chosen=(*view.chosen, *code.notes)))
    return answer({"plan": masked_data(told, parsed.spec)})


@router.post("/groups")
async def launch(body: LaunchBody, here: Here) -> Response:
    """Submit a group; it is kept durably once this answers."""
    parsed = await _parsed(body, here)
    _refuse_unknown(here, parsed.spec)
    with masked_errors(parsed.spec):
        code = await pinned(parsed.spec)
        group = await here.control.submit(code.spec, source=body.text, replace=body.replace)
    warnings = [*_sentences(parsed.warnings), *code.warnings]
    return answer({"id": group.id, "name": group.spec.name, "warnings": warnings})


@router.post("/export")
async def exported(body: ExportBody, here: Here) -> Response:
    """What an infra would be sent for a file; nothing is written."""
    asked = f"{body.to}/{body.context}" if body.context else body.infra or body.to
    export.refuse_unknown(here.control, asked)
    changed = body.model_copy(update={"infra": asked})
    spec = (await _parsed(changed, here, secrets_later=True)).spec
    with masked_errors(spec):
        text, notes = await export.exported(here.control, spec, asked, whole=body.whole)
    return answer(masked_data({"text": text, "notes": list(notes)}, spec))


async def _parsed(body: LaunchBody, here: Context, *, secrets_later: bool = False) -> Parsed:
    """The file, understood; in a thread, since a large one takes its time."""
    _refuse_strange(body)
    try:
        return await asyncio.to_thread(
            parse,
            body.text,
            file=body.file,
            base=body.base,
            home=USER_HOME,
            overrides=body.overrides(),
            user=body.user,
            secrets_later=secrets_later,
        )
    except InputErrors as found:
        flag = any(one.place and one.place.file == f"--infra {body.infra}" for one in found.errors)
        if flag and near_infras(body.infra, here.control.infras):  # a pool without its `local/`
            text, hints = unknown_infra(body.infra, here.control.infras)
            raise InputError(text, code="infra/unknown", hint=hints) from found
        raise


def _refuse_strange(body: LaunchBody) -> None:
    """Raises InputError for what the command line would not send."""
    if not body.base.startswith("/") or "\0" in body.base:
        raise InputError("`base` must be an absolute path", code="server/request", hint=FORMS)
    for flag, pairs in (("--env", body.envs), ("--secret", body.secrets)):
        interpret_pairs([f"{name}={value}" for name, value in pairs.items()], {}, flag=flag)
        if name := next((name for name, value in pairs.items() if "\0" in value), ""):
            raise InputError(f"`{flag} {name}` holds a NUL", code="server/request", hint=FORMS)


def _refuse_unknown(here: Context, spec: GroupSpec) -> None:
    """Raises InputError where the file names an infra that is not here: `plan` says it too."""
    infras = here.control.infras
    for asked in unknown_infras(tuple(spec.nodes()), spec, infras):
        text, hints = unknown_infra(asked, infras)
        raise InputError(text, code="infra/unknown", hint=hints)


def _sentences(warnings: Iterable[Warning_]) -> tuple[str, ...]:
    """Warnings of a file, each with its place."""
    return tuple(
        f"{warning.place}: {warning.text}" if warning.place else warning.text
        for warning in warnings
    )


# --- looking -------------------------------------------------------------------------------------


@router.get("/groups")
async def groups(
    here: Here,
    all: bool = False,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MOST)] = LIMIT_USUAL,
) -> Response:
    """Groups on one line each, newest first; those that ended only with `all`."""
    if all:
        found = await asyncio.to_thread(here.control.groups, ended=True, limit=limit)
    else:
        found = here.control.groups(ended=False, limit=limit)
    return answer({"groups": here.rows.of(found, here.now())})


@router.get("/groups/{ref}")
async def group(ref: str, here: Here) -> Response:
    """One group on a screen."""
    return answer(codec.encode(view_of(here, here.control.find(ref))))


@router.get("/groups/{ref}/spec")
async def spec(ref: str, here: Here) -> Response:
    """The file and what was understood of it, secrets masked."""
    found = here.control.find(ref)

    def shown() -> dict[str, Any]:
        text = masked(here.control.store.source(found.id), found.spec)
        return {"text": text, "spec": masked_data(codec.encode(found.spec), found.spec)}

    return answer(await asyncio.to_thread(shown))  # the file may be a large one


@router.get("/groups/{ref}/explain")
async def explained(ref: str, here: Here) -> Response:
    """Why it waits, or what was decided last and why, and what would mend it."""
    found = here.control.find(ref)
    events = [event for _, event in here.control.store.last_events(found.id, EVENTS_SHOWN)]
    told = explain(found, reasons_of(here, found), events, here.now())
    return answer(codec.encode(told))


@router.get("/groups/{ref}/wait")
async def wait(
    ref: str,
    request: HttpRequest,
    here: Here,
    timeout: Annotated[float | None, Query(ge=0)] = None,
) -> Response:
    """The group once it has ended; 408 after `timeout` seconds."""
    found = here.control.find(ref)

    async def ended() -> Response:
        current = found
        try:
            async with asyncio.timeout(timeout):
                while not current.phase.final:
                    current = await here.control.changed(current.id, current.version)
        except TimeoutError:
            current = here.control.find(current.id)
        view = codec.encode(view_of(here, current))
        return answer(view, 200 if current.phase.final else 408)

    return await awaited(request, here.closing, ended)


# --- asking --------------------------------------------------------------------------------------


@router.post("/groups/{ref}/cancel")
async def cancel(ref: str, here: Here, body: CancelBody | None = None) -> Response:
    """End a group; one that has ended already stays as it is."""
    found = here.control.find(ref)
    if not found.phase.final:
        verb = Verb.CANCEL_NOW if body is not None and body.now else Verb.CANCEL
        with contextlib.suppress(Conflict):  # it ended just now
            await here.control.intend(found.id, Intent(verb, here.now()))
    return answer(FINE)


@router.post("/groups/{ref}/restart")
async def restart(ref: str, here: Here, body: RestartBody | None = None) -> Response:
    """Replace the attempts of a group, a task or a node."""
    wish = body or RestartBody()
    found = here.control.find(ref)
    if found.phase.final:
        raise Conflict(
            f"group {found.spec.name!r} has ended ({found.phase})",
            code="server/ended",
            hint="launch its file again with `argosy launch FILE`",
        )
    if wish.task:
        node_of(found, wish.task, wish.index or 0)
    intent = Intent(Verb.RESTART, here.now(), task=wish.task, index=wish.index)
    await here.control.intend(found.id, intent)
    return answer(FINE)


@router.delete("/groups/{ref}")
async def remove(ref: str, here: Here, force: bool = False) -> Response:
    """Forget an ended group and its logs."""
    await here.control.remove(GroupId(here.control.find(ref).id), force=force)
    return answer(FINE)


ON_ATTEMPT: Final = ("kill", "freeze", "thaw")
ON_HOST: Final = {
    "lose-host": "lose", "restore-host": "restore", "kill-agent": "kill-agent",
    "freeze-host": "freeze", "thaw-host": "thaw",
}  # fmt: skip
MENDING: Final = ("thaw", "restore-host", "thaw-host")  # the rest needs something that runs


@router.post("/groups/{ref}/chaos")
async def chaos(ref: str, body: ChaosBody, here: Here) -> Response:
    """Break something on purpose."""
    found = here.control.find(ref)
    there = newest_attempt if body.what in MENDING else live_attempt
    if body.what not in (*ON_ATTEMPT, *ON_HOST):
        raise InputError(
            f"there is no way to break something named {body.what!r}",
            code="server/chaos",
            hint=f"choose one of {', '.join((*ON_ATTEMPT, *ON_HOST))}",
        )
    attempt = there(found, body.task, body.index)
    if body.what in ON_ATTEMPT:
        wish = {"op": "chaos", "attempt": attempt.id, "what": body.what, "signal": 9}
        async with opened(here.control, attempt, wish) as stream:
            await answered(stream, attempt)
    else:
        if body.what == "restore-host":
            before = reversed(attempts_of(found, attempt.node))
            attempt = next((one for one in before if one.outcome is Outcome.LOST), attempt)
        await here.control.break_host(attempt, ON_HOST[body.what])
    told = f"{body.what}, on purpose, by {user_name()}"
    event = Event(here.now(), "chaos", str(attempt.node), told, attempt.number)
    await here.control.note(found, event)
    return answer(FINE)
