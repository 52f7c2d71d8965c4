"""`workdir`, `file_mounts` and `volumes`: what is on a node before `setup`."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from argosy.model.spec import FileMount, VolumeMount, Workdir
from argosy.model.volumes import VOLUME_NAME, VolumeKind
from argosy.spec.keys.shapes import Fields
from argosy.spec.source.file import Items, Scalar, absent
from argosy.spec.source.notes import Mark, Notes
from argosy.spec.source.words import listed, nearest_word

BUCKETS: Final = ("s3", "gs", "r2", "az", "hf", "cos", "oci", "nebius", "cw", "vastdata")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_AZURE = re.compile(r"https://[a-z0-9]+\.blob\.core\.windows\.net/")
MAX_PATH: Final = 4096


@dataclass(frozen=True, slots=True)
class Folders:
    """What relative paths and `~` of the submitter mean. Absolute; `home` may be ""."""

    base: str
    home: str = ""

    def absolute(self, path: str) -> str:
        """The path without `..`; `~` stays when the home is not known."""
        if path == "~" or path.startswith("~/"):
            return posixpath.normpath(self.home + path[1:]) if self.home else path
        return posixpath.normpath(posixpath.join(self.base, path))


def workdir_of(value: Any, mark: Mark, folders: Folders, notes: Notes) -> Workdir | None:
    """Where the code comes from; None when there is none."""
    if value is None:
        return None
    if isinstance(value, Fields):
        url = str(value.get("url", ""))
        if not url:
            notes.error(
                mark, "workdir-url", "`workdir` is a map without `url`",
                "write `workdir: {url: https://..., ref: main}`, or a path",
            )  # fmt: skip
        return Workdir(url=url, ref=str(value.get("ref", "")))
    text = str(value)
    if _URI.match(text):
        notes.error(
            mark, "workdir-uri", f"`workdir` is a folder of yours, not `{text[:60]}`",
            "write `workdir: {url: ...}` for a git repository, `file_mounts` for a bucket",
        )  # fmt: skip
    path = folders.absolute(text)
    notes.reads(mark, path, "the `workdir`")
    return Workdir(path=path)


def mounts_of(
    pairs: tuple[tuple[Scalar, Any], ...], folders: Folders, notes: Notes
) -> tuple[tuple[FileMount, ...], tuple[str, ...]]:
    """The file mounts, and what of them is not carried out."""
    mounts: list[FileMount] = []
    said: list[str] = []
    for key, value in pairs:
        destination = _destination(key, "file_mounts", notes)
        made = (
            _stored(key, destination, value, folders, notes)
            if isinstance(value, Fields)
            else _copied(key, destination, str(value), folders, notes)
        )
        mounts += made
        said += [text for mount in made for text in _not_carried_out(mount, value)]
    _check_destinations([key for key, _ in pairs], "file_mounts", notes)
    return tuple(mounts), tuple(said)


def _destination(key: Scalar, about: str, notes: Notes) -> str:
    path = key.text
    bad, hint = "", "write `/path/on/node: source`, or `~/path: source`"
    if _URI.match(path):
        bad = "is a URI; a destination is a path on the node"
    elif not path.strip("/") or "\0" in path or len(path) > MAX_PATH:
        bad = "cannot be a path on the node"
    elif _climbs(path):
        bad = "is outside of the working directory"
        hint = "write a path below the working directory, `~/x` or an absolute one"
    elif about == "volumes" and posixpath.normpath(path) in (".", "~"):
        bad = "would hide all that is there"
    if bad:
        notes.error(
            key.mark, "destination", f"the destination `{path[:60]}` of `{about}` {bad}", hint,
        )  # fmt: skip
    return path.rstrip("/") or path


def _climbs(path: str) -> bool:
    """Whether a relative path leaves the folder that it starts from."""
    return posixpath.normpath(path).split("/", 1)[0] == ".."


def _copied(
    key: Scalar, destination: str, source: str, folders: Folders, notes: Notes
) -> list[FileMount]:
    scheme = _URI.match(source)
    if scheme is None:
        path = folders.absolute(source)
        notes.reads(key.mark, path, f"the source of `{destination[:60]}`")
        return [FileMount(destination, path)]
    kind = scheme.group(1).lower()
    if kind in BUCKETS or _AZURE.match(source):
        return [FileMount(destination, source, store=kind, mode="COPY")]
    if kind in ("https", "http"):
        return [FileMount(destination, source)]
    near = nearest_word(kind, (*BUCKETS, "https"))
    notes.error(
        key.mark, "unknown-scheme", f"`{kind}://` is no kind of source that Argosy knows",
        f"did you mean `{near}://`?" if near else f"use a path, https, or one of {listed(BUCKETS)}",
    )  # fmt: skip
    return []


def _stored(
    key: Scalar, destination: str, value: Fields, folders: Folders, notes: Notes
) -> list[FileMount]:
    """A map: a bucket, or what is copied, though it was to be put into a bucket first.

    Of a list each source lies below the destination, under its own name.
    """
    name = str(value.get("name", ""))
    store = str(value.get("store", "")).lower()
    mode = str(value.get("mode", "MOUNT"))
    bucket = FileMount(destination, "", name, store, mode, bool(value.get("persistent", True)))
    sources = [source for source in value.get("source", ()) if source]
    if not sources and not name:
        notes.error(
            value.node.mark, "mount-source",
            f"the file mount `{destination[:60]}` has neither a `source` nor a `name`",
            "give `source: PATH or URI`, or `name: BUCKET`",
        )  # fmt: skip
        return []
    if not sources:
        return [bucket]
    written = value.node.get("source")
    several = isinstance(written, Items)
    made: list[FileMount] = []
    for source in sources:
        last = posixpath.basename(source.rstrip("/"))
        if last in (".", ".."):
            last = posixpath.basename(folders.absolute(source))
        below = posixpath.join(destination, last)
        if several and any(one.destination == below for one in made):
            notes.error(
                (written or value.node).mark, "destination-twice",
                f"two sources of `{destination[:60]}` are named `{last[:60]}`: both would be"
                f" `{below[:60]}`",
                "give them in two file mounts, each with a destination of its own",
            )  # fmt: skip
            continue
        for mount in _copied(key, below if several else destination, source, folders, notes):
            remote = replace(bucket, destination=mount.destination, source=mount.source)
            made.append(remote if mount.mode else mount)
    return made


def _not_carried_out(mount: FileMount, value: Any) -> list[str]:
    """What this version does not do for a mount."""
    if mount.mode:
        return [
            f"`{mount.destination}` comes from a bucket ({mount.source or mount.name}), which this"
            " version does not read or write"
        ]
    if not isinstance(value, Fields):
        return []
    if value.get("name"):
        return [
            f"`{mount.destination}` is a copy of {mount.source}: no bucket `{value.get('name')}` is"
            " made of it, and what a node writes there stays on the node"
        ]
    if _URI.match(mount.source):
        return []
    if value.get("mode", "MOUNT") != "COPY":
        return [
            f"`{mount.destination}` is a copy of {mount.source}: what a node writes there stays on"
            " the node"
        ]
    return []


def volumes_of(pairs: tuple[tuple[Scalar, Any], ...], notes: Notes) -> tuple[VolumeMount, ...]:
    """The volumes of a task, in the order of the file."""
    found: list[VolumeMount] = []
    for key, value in pairs:
        destination = _destination(key, "volumes", notes)
        if isinstance(value, Fields):
            found.append(_volume(destination, value, notes))
        else:
            found.append(VolumeMount(destination, name=str(value)))
    _check_destinations([key for key, _ in pairs], "volumes", notes)
    return tuple(found)


def _volume(destination: str, value: Fields, notes: Notes) -> VolumeMount:
    """A volume that was written as a map."""
    ways = [one for one in ("name", "size", "host_path") if not absent(value.node.get(one))]
    if not ways or ("host_path" in ways and len(ways) > 1):
        notes.error(
            value.node.mark, "volume-form",
            f"the volume `{destination[:60]}` needs one of `name`, `size` and `host_path`",
            "`name`: one that exists; `size`: a new one for the group; `host_path`: a folder",
        )  # fmt: skip
    kind = str(value.get("type", ""))
    _check_kind(kind, ways, value, notes)
    if "size" in ways and "name" in value and not re.fullmatch(VOLUME_NAME, str(value.get("name"))):
        notes.error(
            value.mark("name"), "volume-name",
            "a volume is called by small letters, digits and `-`, at most 50",
            "such as `scratch`",
        )  # fmt: skip
    sub_path = str(value.get("sub_path", ""))
    if sub_path.startswith("/") or _climbs(sub_path):
        notes.error(
            value.mark("sub_path"), "sub-path", f"`sub_path: {sub_path[:60]}` leaves the volume",
            "write the path of a folder inside it, such as `runs/a`",
        )  # fmt: skip
    read_only = value.get("mode") in ("ro", "read-only")
    if "read_only" in value and "mode" in value and value.get("read_only") != read_only:
        notes.error(
            value.mark("read_only"), "given-twice",
            "`mode` and `read_only` say different things", "keep `read_only`",
        )  # fmt: skip
    size, config = value.get("size"), value.get("config")
    return VolumeMount(
        destination,
        name=str(value.get("name", "")),
        sub_path=posixpath.normpath(sub_path) if sub_path else "",
        host_path=posixpath.normpath(str(value.get("host_path", "")) or "/").removesuffix("/"),
        size_gib=size[0] if size else 0.0,
        kind=kind,
        read_only=bool(value.get("read_only", read_only)),
        labels=_texts(value.get("labels", ())),
        storage_class=str(config.get("storage_class_name", "")) if config else "",
        access_mode=str(config.get("access_mode", "")) if config else "",
    )


def _check_kind(kind: str, ways: list[str], value: Fields, notes: Notes) -> None:
    """`type` says what a new volume is, or what kind of folder of the host it is."""
    if not kind or not ways:
        return
    if ways == ["name"]:
        notes.error(
            value.mark("type"), "volume-type", "a volume that exists has its `type` already",
            "remove `type`; or add `size` for a new volume of the group",
        )  # fmt: skip
    elif ways == ["host_path"] and kind not in (VolumeKind.NFS, VolumeKind.HOSTPATH):
        notes.error(
            value.mark("type"), "volume-type", f"`host_path` is no volume of type `{kind}`",
            "write `type: nfs` where the folder is the same on every host, else no `type`",
        )  # fmt: skip
    elif "size" in ways and kind not in (VolumeKind.LOCAL, VolumeKind.PVC):
        notes.error(
            value.mark("type"), "volume-type", f"no new volume of type `{kind}` can be made",
            "`local` and `k8s-pvc` can; for a folder of the hosts write `host_path`",
        )  # fmt: skip


def _texts(pairs: Any) -> tuple[tuple[str, str], ...]:
    """Labels as they are kept."""
    return tuple((str(getattr(key, "text", key)), str(value)) for key, value in pairs)


def _check_destinations(keys: list[Scalar], about: str, notes: Notes) -> None:
    """Two spellings of one destination (`/data` and `/data/`, or after substitution)."""
    seen: dict[str, Scalar] = {}
    for key in keys:
        path = posixpath.normpath(key.text)
        if path in seen:
            notes.error(
                key.mark, "destination-twice",
                f"`{path[:60]}` is a destination of `{about}` twice: in line"
                f" {seen[path].mark.line} and in line {key.mark.line}",
                "give each source a destination of its own",
            )  # fmt: skip
        seen.setdefault(path, key)
