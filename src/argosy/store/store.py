"""What is kept of groups: the record of each, its events, the turns, every lease id ever issued.

Reads are plain calls on connections of their own and never wait for a write. Writes go through one
thread (`writer`) and are answered once they are committed; a commit that issues ids survives a
power failure. All rules of conflict are checked inside the transaction that writes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Select, delete, func, insert, or_, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or
from sqlalchemy.exc import DBAPIError

from argosy.errors import Conflict, InfraError, NotFound
from argosy.model.action import Decision, Event
from argosy.model.group import Group, Intent
from argosy.model.ids import GroupId, InfraName, LeaseId, ServerId, dns_label, group_lease
from argosy.model.volumes import Volume
from argosy.store import database, rows, volumes
from argosy.store.reserve import Reserve
from argosy.store.tables import events, groups, leases, lives, meta, names, turns
from argosy.store.writer import Writer

T = TypeVar("T")
RECORD: Final = (groups.c.record, groups.c.spec)
FOUND_MOST: Final = 20  # groups of one name that are looked at
EXPIRED_MOST: Final = 1000  # groups that are forgotten at once
NEWEST_EVENTS: Final = 1000  # so many of the newest are asked for the newest time


class Store:
    """The rows of one home. The caller holds the home's lock."""

    def __init__(self, path: Path, reading: Engine, writing: Engine) -> None:
        self._path = path
        self._reading = reading
        self._writing = writing
        self._writer = Writer(writing, path)
        self._records = rows.Records()
        self.server_id: ServerId = ServerId("")

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open or make the store, brought up to date. Raises Broken, AccessError, InfraError."""
        try:
            return cls._opened(path)
        except InfraError as error:
            if error.code != "store/disk-full" or not Reserve(path).spend():
                raise
        return cls._opened(path)

    @classmethod
    def _opened(cls, path: Path) -> Store:
        database.make_file(path)
        reading, writing = database.reader(path), database.writer(path)
        try:
            database.bring_up_to_date(writing, path)
            store = cls(path, reading, writing)
        except BaseException:
            reading.dispose()
            writing.dispose()
            raise
        try:
            store.server_id = store._writer.write_now(_server_id, durable=True)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Write what is queued and let go of the file. May be repeated."""
        self._writer.close()
        self._reading.dispose()
        self._writing.dispose()

    # --- lives and time --------------------------------------------------------------------------

    def open_life(self, now: float) -> int:
        """The number of a new life of the server, durably: max(last + 1, seconds of `now`)."""

        def write(connection: Connection) -> int:
            last = connection.execute(select(func.max(lives.c.life))).scalar() or 0
            life = max(int(last) + 1, int(now))
            connection.execute(insert(lives), {"life": life, "opened_at": now})
            return life

        return self._writer.write_now(write, durable=True)

    def newest_time(self) -> float:
        """The newest instant in the store, in seconds since the epoch; 0.0 when it is new."""
        newest = select(events.c.at).order_by(events.c.seq.desc()).limit(NEWEST_EVENTS).subquery()
        with self._read() as connection:
            found = [
                connection.execute(select(func.max(column))).scalar()
                for column in (
                    newest.c.at,
                    groups.c.submitted_at,
                    groups.c.ended_at,
                    lives.c.opened_at,
                )
            ]
        return max((float(one) for one in found if one is not None), default=0.0)

    # --- writing ---------------------------------------------------------------------------------

    async def create(self, group: Group, source: str, events: tuple[Event, ...]) -> Group:
        """Keep a new group, durably. Raises Conflict when its name lives."""
        created = replace(group, version=group.version + 1)

        def write(connection: Connection) -> Group:
            _refuse_live_name(connection, group)
            volumes.note_uses(connection, created)
            connection.execute(insert(names), {"name": created.spec.name, "group_id": created.id})
            columns = {**rows.first(created, source), **rows.row(created)}
            connection.execute(insert(groups), columns)
            mark = group_lease(group.id)
            _add_leases(connection, group.id, [mark, *(lease.id for lease in group.leases)])
            _add_events(connection, created, events)
            return created

        return await self._writer.write(write, durable=True)

    async def save(self, before: Group, decision: Decision) -> Group:
        """Replace the record `before` by the decision's, with all that goes along, at once.

        Raises Conflict when the version moved or a turn is taken, NotFound when it was removed.
        """
        after = replace(decision.group, version=before.version + 1)
        columns = self._records.row(after)
        if not columns["unfinished"]:
            self._records.forget(after.id)
        known = {lease.id for lease in before.leases}
        issued = [lease.id for lease in after.leases if lease.id not in known]

        def write(connection: Connection) -> Group:
            _refuse_moved(connection, before)
            _take_turns(connection, before, after)
            connection.execute(update(groups).where(groups.c.id == after.id), columns)
            if after.phase.final and not before.phase.final:
                connection.execute(delete(names).where(names.c.group_id == after.id))
            _add_leases(connection, after.id, issued)
            _add_events(connection, after, decision.events)
            return after

        return await self._writer.write(write, durable=after.serial != before.serial)

    async def intend(self, group: GroupId, intent: Intent) -> Group:
        """Add a wish to the record. Raises NotFound."""

        def write(connection: Connection) -> Group:
            found = _load(connection, group)
            after = replace(found, intents=(*found.intents, intent), version=found.version + 1)
            connection.execute(update(groups).where(groups.c.id == group), rows.row(after))
            return after

        return await self._writer.write(write, durable=False)

    async def note(self, group: Group, event: Event) -> None:
        """Add a fact to the timeline of a group; its record stays as it is."""
        await self._writer.write(
            lambda connection: _add_events(connection, group, (event,)), durable=False
        )

    async def keep(self, name: str, value: str) -> None:
        """Keep a value of the home under a name, durably; "" forgets it."""

        def write(connection: Connection) -> None:
            connection.execute(delete(meta).where(meta.c.name == name))
            if value:
                connection.execute(insert(meta), {"name": name, "value": value})

        await self._writer.write(write, durable=True)

    async def remove(self, group: GroupId, *, force: bool = False) -> None:
        """Forget an ended group and its events; its lease ids stay known.

        Raises Conflict while it lives and, unless `force`, while what may be left of it uses a
        volume; NotFound when there is none.
        """

        def write(connection: Connection) -> None:
            found = _load(connection, group)
            if not found.phase.final:
                raise Conflict(
                    f"group {found.spec.name!r} has not ended ({found.phase})",
                    code="store/group-lives",
                    hint=f"`argosy cancel {found.spec.name}` ends it",
                )
            if not force and not found.clean:
                volumes.refuse_used(connection, found)
            _forget(connection, [group])

        await self._writer.write(write, durable=False)
        self._records.forget(group)

    async def expire(self, before: float) -> list[Group]:
        """Forget some groups that ended before that instant and left nothing behind."""

        def write(connection: Connection) -> list[Group]:
            ended = (groups.c.ended_at > 0) & (groups.c.ended_at < before)
            old = select(*RECORD).where(ended, groups.c.unfinished.is_(False)).limit(EXPIRED_MOST)
            found = [rows.group_of(dict(one)) for one in connection.execute(old).mappings()]
            _forget(connection, [one.id for one in found])
            return found

        expired = await self._writer.write(write, durable=False)
        for one in expired:
            self._records.forget(one.id)
        return expired

    # --- reading ---------------------------------------------------------------------------------

    def unfinished(self) -> list[Group]:
        """Groups that are not final, or of which something may be left; oldest first."""
        query = select(*RECORD).where(groups.c.unfinished)
        return self._groups(query.order_by(groups.c.submitted_at))

    def load(self, group: GroupId) -> Group:
        """The group of that id. Raises NotFound."""
        with self._read() as connection:
            return _load(connection, group)

    def find(self, ref: str, limit: int = FOUND_MOST) -> list[Group]:
        """The newest groups of that id or name (as written, or its DNS form), newest first."""
        query = select(*RECORD).where(
            or_(groups.c.id == ref, groups.c.name.in_({ref, dns_label(ref)}))
        )
        return self._groups(_newest_first(query).limit(limit))

    def names(self) -> list[str]:
        """The name of every group that is kept, each once."""
        with self._read() as connection:
            return list(connection.execute(select(groups.c.name).distinct()).scalars())

    def groups(self, *, ended: bool, limit: int) -> list[Group]:
        """At most `limit` groups, newest first; those that ended only with `ended`."""
        query = select(*RECORD) if ended else select(*RECORD).where(groups.c.live)
        return self._groups(_newest_first(query).limit(limit))

    def source(self, group: GroupId) -> str:
        """The file as it was submitted, secrets included. Raises NotFound."""
        with self._read() as connection:
            found = connection.execute(select(groups.c.source).where(groups.c.id == group)).scalar()
        if found is None:
            raise _not_found(group)
        return str(found)

    def events(self, group: GroupId, since: int = 0, limit: int = 1000) -> list[tuple[int, Event]]:
        """At most `limit` events with a number greater than `since`, oldest first."""
        query = _events_of(group).where(events.c.seq > since).order_by(events.c.seq).limit(limit)
        with self._read() as connection:
            return [(seq, Event(*columns)) for seq, *columns in connection.execute(query)]

    def last_events(self, group: GroupId, limit: int) -> list[tuple[int, Event]]:
        """The newest `limit` events, oldest first."""
        query = _events_of(group).order_by(events.c.seq.desc()).limit(limit)
        with self._read() as connection:
            found = [(seq, Event(*columns)) for seq, *columns in connection.execute(query)]
        return found[::-1]

    def kept(self, name: str) -> str:
        """What is kept under that name; "" when nothing is."""
        with self._read() as connection:
            found = connection.execute(select(meta.c.value).where(meta.c.name == name)).scalar()
        return str(found or "")

    def issued(self, lease: LeaseId) -> bool:
        """Whether this store ever issued that lease id."""
        with self._read() as connection:
            found = connection.execute(select(leases.c.id).where(leases.c.id == lease)).scalar()
        return found is not None

    # --- volumes ---------------------------------------------------------------------------------

    def volumes(self) -> list[Volume]:
        """All volumes, by name."""
        with self._read() as connection:
            return volumes.every(connection)

    def volume_users(self) -> dict[str, list[str]]:
        """Id of a volume -> the names of the unfinished groups that mount it."""
        with self._read() as connection:
            return volumes.users(connection)

    async def put_volume(self, volume: Volume) -> None:
        """Keep a volume, durably. Of one that is there, where its bytes are stays as it is."""
        await self._writer.write(lambda found: volumes.put(found, volume), durable=True)

    async def pin_volume(self, volume: str, infra: InfraName, host: str) -> Volume:
        """Say where its bytes are, unless that is decided. Raises NotFound, Conflict."""
        return await self._writer.write(
            lambda found: volumes.pin(found, volume, infra, host), durable=True
        )

    async def begin_delete_volume(self, name: str) -> Volume:
        """From now on nothing new mounts it. Raises NotFound, and Conflict while groups use it."""
        return await self._writer.write(
            lambda found: volumes.begin_delete(found, name), durable=True
        )

    async def strike_volume(self, volume: str) -> None:
        """Forget a volume, by its id."""
        await self._writer.write(lambda found: volumes.strike(found, volume), durable=False)

    def _groups(self, query: Select[Any]) -> list[Group]:
        with self._read() as connection:
            found = connection.execute(query).mappings().all()
        return [rows.group_of(dict(one)) for one in found]

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        try:
            with self._reading.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise database.translated(error, self._path) from error


# --- parts of transactions; each checks before it writes -----------------------------------------


def _server_id(connection: Connection) -> ServerId:
    found = connection.execute(select(meta.c.value).where(meta.c.name == "server_id")).scalar()
    if found is None:
        found = secrets.token_hex(6)
        connection.execute(insert(meta), {"name": "server_id", "value": found})
    return ServerId(str(found))


def _load(connection: Connection, group: GroupId) -> Group:
    query = select(*RECORD).where(groups.c.id == group)
    found = connection.execute(query).mappings().one_or_none()
    if found is None:
        raise _not_found(group)
    return rows.group_of(dict(found))


def _not_found(group: GroupId) -> NotFound:
    return NotFound(f"there is no group {group!r}", code="store/no-group")


def _events_of(group: GroupId) -> Select[Any]:
    """The number and the fields of each event, in the order that `Event` has them."""
    table = events.c
    columns = (table.seq, table.at, table.code, table.about, table.text, table.attempt)
    return select(*columns).where(table.group_id == group)


def _newest_first(query: Select[Any]) -> Select[Any]:
    return query.order_by(groups.c.submitted_at.desc(), groups.c.id.desc())


def _refuse_live_name(connection: Connection, group: Group) -> None:
    name = group.spec.name
    query = select(names.c.group_id).where(names.c.name == name)
    running = connection.execute(query).scalar()
    if running is not None:
        raise Conflict(
            f"a group {name!r} is live already: {running}",
            code="store/name-lives",
            hint=(
                f"`--replace` ends {running} first; `--name NAME` launches beside it",
                f"`argosy status {name}` shows it, `argosy cancel {name}` ends it",
            ),
        )


def _refuse_moved(connection: Connection, before: Group) -> None:
    query = select(groups.c.version).where(groups.c.id == before.id)
    version = connection.execute(query).scalar()
    if version is None:
        raise _not_found(before.id)
    if version != before.version:
        raise Conflict(
            f"the record of {before.spec.name!r} moved on: version {version}, not {before.version}",
            code="store/version-moved",
            hint="decide again on the newer record",
        )


def _take_turns(connection: Connection, before: Group, after: Group) -> None:
    had, wanted = set(before.placing.turns), set(after.placing.turns)
    if wanted - had:
        query = select(turns.c.infra, turns.c.group_id).where(
            turns.c.infra.in_(wanted), turns.c.group_id != after.id
        )
        taken = connection.execute(query).first()
        if taken is not None:
            raise Conflict(
                f"group {taken.group_id} has the turn on {taken.infra}",
                code="store/turn-taken",
                hint="wait until it has all it needs, or has given up",
            )
        wish = insert_or(turns).on_conflict_do_nothing()
        connection.execute(
            wish, [{"infra": infra, "group_id": after.id} for infra in sorted(wanted)]
        )
    if had - wanted:
        freed = turns.c.infra.in_(had - wanted) & (turns.c.group_id == after.id)
        connection.execute(delete(turns).where(freed))


def _add_leases(connection: Connection, group: GroupId, ids: list[LeaseId]) -> None:
    if ids:
        connection.execute(
            insert_or(leases).on_conflict_do_nothing(),
            [{"id": one, "group_id": group} for one in ids],
        )


def _add_events(connection: Connection, group: Group, facts: tuple[Event, ...]) -> None:
    if facts:
        connection.execute(insert(events), [rows.event_row(group, fact) for fact in facts])


def _forget(connection: Connection, ids: list[GroupId]) -> None:
    for one in ids:
        connection.execute(delete(turns).where(turns.c.group_id == one))
        volumes.forget_group(connection, one)
        connection.execute(delete(events).where(events.c.group_id == one))
        connection.execute(delete(groups).where(groups.c.id == one))
