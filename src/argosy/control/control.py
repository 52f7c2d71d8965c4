"""The control plane as one object: what the server and nobody else talks to."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from argosy.clock import Clock
from argosy.control import planning
from argosy.control.controller import Controller
from argosy.control.links import Usage
from argosy.control.lost_hosts import LostHosts
from argosy.control.volumes import KeptVolumes
from argosy.errors import ArgosyError, CapacityError, Conflict, InputError, NotFound
from argosy.infra.api import Breaks, HostRef, Infra, Stream
from argosy.infra.registry import InfraSettings, open_infras
from argosy.model.action import Event, Limits, Reason, Replan
from argosy.model.group import Attempt, Group, Intent, Verb
from argosy.model.ids import ZERO, AttemptId, GroupId, InfraName, Serial, dns_label, group_id
from argosy.model.plan import NoPlan, Plan
from argosy.model.spec import FileMount, GroupSpec, TaskSpec
from argosy.plan.report import NO_ACCELERATORS
from argosy.storage import snapshot
from argosy.store.store import Store

log = logging.getLogger("argosy.control.control")

FORGET_TIMEOUT = 60.0  # seconds for one host to remove the logs and folders of a group
LET_GO_TIMEOUT = 5.0  # seconds that `remove` waits until nothing of a group is left
KEPT_DAYS = 30.0  # ended groups are forgotten after so long


class Control:
    """Everything behind the API."""

    def __init__(self, store: Store, home: Path, limits: Limits | None = None) -> None:
        self.store, self.home, self.limits = store, home, limits or Limits()
        self.clock = Clock(store.newest_time())
        self.life = 0
        self.infras: Mapping[InfraName, Infra] = {}
        self._controller: Controller
        self._groups_issued = 0

    async def start(self) -> None:
        """Open a life, and take up every unfinished group."""
        self.life = self.store.open_life(self.clock.now())
        settings = InfraSettings(self.home, self.store.server_id, self.clock.now)
        self.infras = open_infras(settings)
        self._controller = Controller(
            self.store,
            self.clock,
            self.infras,
            life=self.life,
            limits=self.limits,
            folder=self.home,
        )
        await asyncio.to_thread(snapshot.drop_unknown, self.home, self._is_known)
        await self._controller.start()
        self._controller.spawn("expire", self._expire())

    async def stop(self) -> None:
        """End; running groups go on."""
        await self._controller.stop()
        for infra in self.infras.values():
            close = getattr(infra, "close", None)
            if close is not None:
                await close()

    def _is_known(self, group: GroupId) -> bool:
        try:
            self.store.load(group)
        except NotFound:
            return False
        return True

    @property
    def lost_hosts(self) -> LostHosts:
        """The hosts that the user said are gone."""
        return self._controller.lost_hosts

    @property
    def volumes(self) -> KeptVolumes:
        """The volumes of this server."""
        return self._controller.volumes

    # What the user wants

    async def plan(self, spec: GroupSpec) -> Plan | NoPlan:
        """Where each node would go now; nothing is written. Raises NotFound and Conflict for its
        volumes.
        """
        spec = self.volumes.placed(self.volumes.resolved(spec))
        nodes = tuple(spec.nodes())
        request, counted = Replan(ZERO, nodes, ()), self.lost_hosts.offered
        return await planning.answer(request, spec, self.infras, self.clock, counted)

    async def submit(self, spec: GroupSpec, *, source: str, replace: bool) -> Group:
        """Take a group in. Raises Conflict for a live name, CapacityError when it can never fit."""
        await self._refuse_impossible(spec)
        spec = self.volumes.resolved(spec)
        if not replace:
            self._refuse_live(spec.name)  # before anything is copied
        self._groups_issued += 1
        id_ = group_id(self.store.server_id, Serial(self.life, self._groups_issued))
        try:
            taken = await asyncio.to_thread(snapshot.take, self.home, id_, snapshot.sources(spec))
            if replace:  # only now: a file that is not there ends nothing
                await self._end_live(spec.name)
            self._refuse_live(spec.name)
            group = Group(id=id_, spec=_moved(spec, taken), submitted_at=self.clock.now())
            by = f" by {spec.user}" if spec.user else ""
            event = Event(group.submitted_at, "group-submitted", "", f"submitted{by}")
            created = await self.store.create(group, source, (event,))
        except BaseException:
            await asyncio.to_thread(snapshot.drop, self.home, id_)
            raise
        self._controller.add(created)
        return created

    async def intend(self, group: GroupId, intent: Intent) -> None:
        """Write down a wish. Raises NotFound, Conflict when the group is over."""
        if self.store.load(group).phase.final:
            raise Conflict("the group is over", code="group/over", hint="`argosy launch` it again")
        entry = self._controller.entries.get(group)
        if entry is not None and entry.broken and intent.verb is not Verb.RESTART:
            await self._controller.end_broken(entry)
            return
        after = await self.store.intend(group, intent)
        if entry is not None:
            self._controller.taken(entry, after)

    async def remove(self, group: GroupId, *, force: bool = False) -> None:
        """Forget an ended group, its logs and its snapshots. Raises Conflict while it lives and,
        unless `force`, while what may be left of it uses a volume.
        """
        found = self.store.load(group)
        if not force and found.phase.final and found.spec.kept_volumes():
            await self._let_go(group)
        await self.store.remove(group, force=force)
        self._controller.forget(group)
        await asyncio.to_thread(snapshot.drop, self.home, group)
        await self._forget_logs(found)

    async def break_host(self, attempt: Attempt, what: str) -> None:
        """Break the host of an attempt on purpose, or mend it."""
        infra = self.infras.get(attempt.infra)
        if not isinstance(infra, Breaks):
            raise InputError(
                f"hosts of {attempt.infra!r} can't be broken on purpose",
                code="chaos/no-host",
                hint="try it on a virtual pool: `--infra local/NAME`",
            )
        await infra.break_host(attempt.host, what)
        self._controller.look(attempt.infra)
        if what in ("restore", "thaw"):
            self._controller.freed(attempt.infra)

    async def note(self, group: Group, event: Event) -> None:
        """Add a fact to the timeline of a group, and wake who follows it."""
        await self.store.note(group, event)
        entry = self._controller.entries.get(group.id)
        if entry is not None:
            entry.tell_changed()

    # What there is

    def find(self, ref: str) -> Group:
        """The newest group of that name, or the one of that id. Raises NotFound."""
        entry = self._controller.entries.get(GroupId(ref))
        if entry is not None:
            return entry.group
        found = self.store.find(ref)
        if found:
            return self._newest(found[0])
        names = self.store.names()
        near = difflib.get_close_matches(dns_label(ref), names, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else ""
        raise NotFound(f"there is no group {ref!r}", code="group/unknown", hint=hint)

    def groups(self, *, ended: bool, limit: int = 1000) -> list[Group]:
        """At most `limit` groups, newest first; those that ended only with `ended`.

        Living ones are answered from memory. With `ended` it reads the store, and may be called
        from a thread.
        """
        if ended:
            return [self._newest(one) for one in self.store.groups(ended=True, limit=limit)]
        there = (entry.group for entry in self._controller.entries.values())
        live = [group for group in there if not group.phase.final]
        return sorted(live, key=lambda one: (one.submitted_at, one.id), reverse=True)[:limit]

    def reasons(self, group: GroupId) -> tuple[Reason, ...]:
        """Why it waits; () when it does not."""
        entry = self._controller.entries.get(group)
        return entry.reasons if entry is not None else ()

    def usage(self, group: Group) -> Mapping[AttemptId, Usage]:
        """What the running attempts of a group use."""
        links = self._controller.links
        live = [(one.id, links.get((one.infra, one.host))) for one in group.attempts if one.live]
        return {id_: link.usage[id_] for id_, link in live if link and id_ in link.usage}

    async def changed(self, group: GroupId, version: int) -> Group:
        """Returns once the record is newer than `version`, or what it waits for has changed."""
        entry = self._controller.entries.get(group)
        if entry is None:
            return self.store.load(group)
        if entry.group.version <= version:
            await entry.changed.wait()
        return entry.group

    async def agent_of(self, attempt: Attempt) -> Stream:
        """A fresh stream to the agent of an attempt. Raises Unreachable, NotFound."""
        infra = self.infras.get(attempt.infra)
        if infra is None:
            raise NotFound(
                f"infra {attempt.infra!r} is not configured",
                code="infra/unknown",
                hint="put it back into config.yaml and restart the server",
            )
        return await infra.attach(HostRef(attempt.infra, attempt.host))

    # Small things

    def _newest(self, group: Group) -> Group:
        entry = self._controller.entries.get(group.id)
        return entry.group if entry is not None else group

    def _refuse_live(self, name: str) -> None:
        """Refuse a live name before files are copied; the store refuses it again, for good."""
        for entry in self._controller.entries.values():
            if entry.group.spec.name == name and not entry.group.phase.final:
                raise Conflict(
                    f"a group {name!r} is live already: {entry.group.id}",
                    code="store/name-lives",
                    hint=(
                        "`--replace` ends it first; `--name NAME` launches beside it",
                        f"`argosy status {name}` shows it, `argosy cancel {name}` ends it",
                    ),
                )

    async def _refuse_impossible(self, spec: GroupSpec) -> None:
        unknown = planning.unknown_infras(tuple(spec.nodes()), spec, self.infras)
        if unknown:
            raise InputError(
                f"no infra {unknown[0]!r} is known here",
                code="infra/unknown",
                hint=f"there is {', '.join(sorted(self.infras))}; or `--infra local`",
            )
        found = await self.plan(spec)
        if isinstance(found, NoPlan) and found.never:
            first, *more = found.report.refused or ("it fits nowhere",)
            hints = [line for line in more if not line.endswith(NO_ACCELERATORS)]
            if len(hints) < len(more) or first.endswith(NO_ACCELERATORS):
                hints = [NO_ACCELERATORS, *hints]
            text = first.removesuffix(f": {NO_ACCELERATORS}")
            raise CapacityError(text, code="plan/never-fits", hint=tuple(hints))

    async def _end_live(self, name: str) -> None:
        for group in self.store.find(name):
            entry = self._controller.entries.get(group.id)
            if entry is None or entry.group.phase.final:
                continue
            with contextlib.suppress(Conflict):  # it ended just now
                await self.intend(group.id, Intent(Verb.CANCEL, self.clock.now(), by="--replace"))
            while not entry.group.phase.final:
                await entry.changed.wait()

    async def _let_go(self, group: GroupId) -> None:
        """Wait a little until nothing of an ended group is left."""
        entry = self._controller.entries.get(group)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LET_GO_TIMEOUT):
                while entry is not None and self._controller.entries.get(group) is entry:
                    await entry.changed.wait()

    async def _forget_logs(self, group: Group) -> None:
        for infra, host in {(one.infra, one.host) for one in group.attempts if one.host}:
            if infra not in self.infras:
                continue
            try:
                async with asyncio.timeout(FORGET_TIMEOUT):
                    await self._tell_forget(HostRef(infra, host), group.id)
            except (ArgosyError, OSError) as error:  # they go with the host's own cap
                extra = {"group": group.id, "host": host, "why": str(error)}
                log.warning("forget-failed", extra=extra)

    async def _tell_forget(self, host: HostRef, group: GroupId) -> None:
        stream = await self.infras[host.infra].attach(host)
        try:
            line = json.dumps({"op": "forget", "group": group})
            await stream.write(line.encode() + b"\n")
            await stream.readline()
        finally:
            await stream.close()

    async def _expire(self) -> None:
        while True:
            try:
                for group in await self.store.expire(self.clock.now() - KEPT_DAYS * 86400.0):
                    await asyncio.to_thread(snapshot.drop, self.home, group.id)
                    await self._forget_logs(group)
            except (ArgosyError, OSError) as error:
                log.warning("expire-failed", extra={"why": str(error)})
            await self.clock.sleep(3600.0)


def _moved(spec: GroupSpec, taken: Mapping[str, str]) -> GroupSpec:
    """The spec with every local path replaced by its snapshot."""
    return replace(spec, tasks=tuple(_moved_task(task, taken) for task in spec.tasks))


def _moved_task(task: TaskSpec, taken: Mapping[str, str]) -> TaskSpec:
    workdir = task.workdir
    if workdir is not None and workdir.path:
        workdir = replace(workdir, path=taken[workdir.path])
    mounts = tuple(_moved_mount(mount, taken) for mount in task.file_mounts)
    return replace(task, workdir=workdir, file_mounts=mounts)


def _moved_mount(mount: FileMount, taken: Mapping[str, str]) -> FileMount:
    if mount.source not in taken:
        return mount
    named = mount.name or Path(mount.source).name  # a snapshot is called by its hash
    return replace(mount, source=taken[mount.source], name=named)
