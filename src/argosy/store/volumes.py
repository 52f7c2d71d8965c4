"""What is kept of volumes: one row each, and which unfinished groups use them."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from argosy.errors import Conflict, NotFound
from argosy.model import codec
from argosy.model.group import Group
from argosy.model.ids import GroupId, InfraName
from argosy.model.volumes import Volume, VolumeSpec
from argosy.store.tables import groups, volume_uses, volumes


def every(connection: Connection) -> list[Volume]:
    """All volumes, by name."""
    found = connection.execute(select(volumes).order_by(volumes.c.name)).mappings()
    return [_volume(one) for one in found]


def users(connection: Connection, volume: str | None = None) -> dict[str, list[str]]:
    """Id of a volume (or of all) -> the names of the unfinished groups that mount it."""
    query = (
        select(volume_uses.c.volume_id, groups.c.name)
        .join(groups, groups.c.id == volume_uses.c.group_id)
        .where(groups.c.unfinished)
        .order_by(groups.c.submitted_at)
    )
    if volume is not None:
        query = query.where(volume_uses.c.volume_id == volume)
    found: dict[str, list[str]] = {}
    for id_, name in connection.execute(query):
        found.setdefault(id_, []).append(name)
    return found


def put(connection: Connection, volume: Volume) -> None:
    """Keep a volume. Of one that is there already, where its bytes are stays as it was decided."""
    row = _row(volume)
    changing = {name: row[name] for name in ("spec", "deleting", "created_at")}
    if not connection.execute(update(volumes).where(volumes.c.id == volume.id), changing).rowcount:
        connection.execute(insert(volumes), row)


def pin(connection: Connection, id_: str, infra: InfraName, host: str) -> Volume:
    """Say where its bytes are, unless that is decided. Raises NotFound, Conflict."""
    found = _by_id(connection, id_)
    if not found.host and not found.infra:
        where = volumes.c.id == id_
        connection.execute(update(volumes).where(where), {"infra": infra, "host": host})
        return _by_id(connection, id_)
    if (found.infra, found.host) != (infra, host):
        raise Conflict(
            f"the volume {found.spec.name!r} is on {found.host or found.infra}, not on "
            f"{host or infra}",
            code="volumes/elsewhere",
            hint="it stays where it was used first",
        )
    return found


def begin_delete(connection: Connection, name: str) -> Volume:
    """From now on nothing new mounts it. Raises NotFound, and Conflict while groups use it."""
    found = one(connection, name)
    using = users(connection, found.id).get(found.id)
    if using:
        raise Conflict(
            f"the volume {name!r} is in use by {', '.join(dict.fromkeys(using))}",
            code="volumes/in-use",
            hint=(
                "it can be deleted when they have ended: `argosy cancel GROUP` ends one",
                "of one that has ended something may be left on a host that does not answer: "
                "`argosy status GROUP` names it",
            ),
        )
    connection.execute(update(volumes).where(volumes.c.name == name), {"deleting": True})
    return one(connection, name)


def strike(connection: Connection, id_: str) -> None:
    """Forget a volume."""
    connection.execute(delete(volumes).where(volumes.c.id == id_))
    connection.execute(delete(volume_uses).where(volume_uses.c.volume_id == id_))


def one(connection: Connection, name: str) -> Volume:
    """The volume of that name. Raises NotFound."""
    query = select(volumes).where(volumes.c.name == name)
    found = connection.execute(query).mappings().one_or_none()
    if found is None:
        raise NotFound(
            f"there is no volume {name!r}",
            code="volumes/unknown",
            hint="`argosy volumes list` shows those that there are",
        )
    return _volume(found)


def note_uses(connection: Connection, group: Group) -> None:
    """Keep what a new group mounts. Raises Conflict when a volume of it goes just now."""
    ids = group.spec.kept_volumes()
    if not ids:
        return
    query = select(volumes.c.id).where(volumes.c.id.in_(ids), volumes.c.deleting.is_(False))
    there = set(connection.execute(query).scalars())
    for task in group.spec.tasks:
        for mount in task.volumes:
            if mount.id and mount.id not in there:
                raise Conflict(
                    f"the volume {mount.name!r} has just been deleted",
                    code="volumes/deleted",
                    hint="`argosy volumes list` shows those that there are",
                )
    rows = [{"volume_id": id_, "group_id": group.id} for id_ in sorted(ids)]
    connection.execute(insert(volume_uses), rows)


def refuse_used(connection: Connection, group: Group) -> None:
    """Raise Conflict when a group mounts volumes: without it they might be deleted."""
    query = (
        select(volumes.c.name)
        .join(volume_uses, volume_uses.c.volume_id == volumes.c.id)
        .where(volume_uses.c.group_id == group.id)
        .order_by(volumes.c.name)
    )
    name, used = group.spec.name, list(connection.execute(query).scalars())
    if used:
        raise Conflict(
            f"group {name!r} has ended, but something of it may be left that uses the volume "
            + ", ".join(map(repr, used)),
            code="store/volumes-used",
            hint=(
                f"`argosy status {name}` names the host; `argosy infra forget HOST` says that it "
                "will never come back",
                "`argosy rm --force` forgets the group all the same, and frees the volume",
            ),
        )


def forget_group(connection: Connection, group: GroupId) -> None:
    """That group is kept no more."""
    connection.execute(delete(volume_uses).where(volume_uses.c.group_id == group))


def _by_id(connection: Connection, id_: str) -> Volume:
    found = connection.execute(select(volumes).where(volumes.c.id == id_)).mappings().one_or_none()
    if found is None:
        raise NotFound(f"the volume {id_} is there no more", code="volumes/unknown")
    return _volume(found)


def _row(volume: Volume) -> dict[str, Any]:
    return {
        "name": volume.spec.name,
        "id": volume.id,
        "created_at": volume.created_at,
        "infra": volume.infra,
        "host": volume.host,
        "deleting": volume.deleting,
        "spec": codec.dumps(codec.encode(volume.spec)),
    }


def _volume(row: RowMapping) -> Volume:
    return Volume(
        id=row["id"],
        spec=codec.decode(VolumeSpec, json.loads(row["spec"])),
        created_at=row["created_at"],
        infra=row["infra"],
        host=row["host"],
        deleting=row["deleting"],
    )
