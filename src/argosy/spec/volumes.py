"""Volume files: a text, or the flags of `argosy volumes create`, to volumes. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, Final

from argosy.model.volumes import KUBERNETES, ON_HOSTS, VolumeKind, VolumeSpec
from argosy.spec.keys.model import VOLUME_FILE
from argosy.spec.keys.shapes import Fields
from argosy.spec.source.file import Map, Node, Scalar, absent, documents, open_notes, value_of
from argosy.spec.source.notes import Mark, Notes

OF_KUBERNETES: Final = ("storage_class_name", "access_mode", "namespace")
DEFAULT_ACCESS: Final = "ReadWriteOnce"


def parse_volumes(text: bytes | str, file: str) -> tuple[VolumeSpec, ...]:
    """The volumes of a file, one a document. Raises InputErrors with everything that is wrong."""
    decoded, notes = open_notes(text, file)
    found = documents(decoded, notes)
    if not found:
        notes.error(
            Mark(1, 1), "no-volume", "the file describes no volume",
            "write `name: my-data` and `size: 100Gi`",
        )  # fmt: skip
    specs = [_volume(node, notes) for node in found]
    _check_names(found, specs, notes)
    notes.raise_errors()
    return tuple(specs)


def volume_of_flags(flags: Mapping[str, str]) -> VolumeSpec:
    """The volume of `argosy volumes create`: key of a volume file (`config.host_path` for one in a
    map) -> what was given. Raises InputErrors.
    """
    notes = Notes("argosy volumes create", [])
    root = Map(Mark(0, 0, "argosy volumes create"))
    for path, text in flags.items():
        first, _, second = path.partition(".")
        flag = "NAME" if path == "name" else f"--{(second or first).replace('_', '-')}"
        flag = flag.replace("-name", "") if second == "storage_class_name" else flag
        value = value_of(text, f"{flag} {text[:80]}") if first == "use_existing" else _word(
            text, f"{flag} {text[:80]}")  # fmt: skip
        if second:
            inner = root.get(first)
            if not isinstance(inner, Map):
                inner = Map(Mark(0, 0, flag))
                root.pairs.append((_word(first, flag), inner))
            inner.pairs.append((_word(second, flag), value))
        else:
            root.pairs.append((_word(first, flag), value))
    spec = _volume(root, notes)
    notes.raise_errors()
    return spec


def _word(text: str, flag: str) -> Scalar:
    return Scalar(text, text, Mark(0, 0, flag))


def _volume(node: Node, notes: Notes) -> VolumeSpec:
    if not isinstance(node, Map):
        notes.error(
            node.mark, "no-map", "a volume is described by a map of keys", "write `name: my-data`",
        )  # fmt: skip
        return VolumeSpec()
    fields = VOLUME_FILE.read(node, "", notes)
    if fields is None:
        return VolumeSpec()
    if "name" not in fields and not node.get("name"):
        notes.error(
            node.mark, "no-name", "this volume has no `name`", "write `name: my-data`",
        )  # fmt: skip
    config: Fields | None = fields.get("config")
    known: Mapping[str, Any] = config.values if config is not None else {}
    kind = _kind(fields)
    infra = str(fields.get("infra", "")) or _usual_infra(kind)
    spec = VolumeSpec(
        name=str(fields.get("name", "")),
        kind=kind,
        infra=infra,
        size_gib=fields.get("size", (0.0, True))[0],
        use_existing=bool(fields.get("use_existing", False)),
        labels=tuple((key.text, str(value)) for key, value in fields.get("labels", ())),
        storage_class=str(known.get("storage_class_name", "")),
        access_mode=str(known.get("access_mode", DEFAULT_ACCESS if kind is VolumeKind.PVC else "")),
        namespace=str(known.get("namespace", "")),
        host_path=posixpath.normpath(known["host_path"]) if "host_path" in known else "",
        host=str(known.get("host", "")),
    )
    _check(spec, fields, config, notes)
    return spec


def _kind(fields: Fields) -> VolumeKind:
    if "type" in fields:
        return VolumeKind(fields.get("type"))
    on_kubernetes = str(fields.get("infra", "")).startswith(KUBERNETES)
    return VolumeKind.PVC if on_kubernetes else VolumeKind.LOCAL


def _usual_infra(kind: VolumeKind) -> str:
    if kind in (VolumeKind.PVC, VolumeKind.HOSTPATH):
        return KUBERNETES
    return "local" if kind is VolumeKind.LOCAL else ""


def _check(spec: VolumeSpec, fields: Fields, config: Fields | None, notes: Notes) -> None:
    """What does not go together."""
    on_kubernetes = spec.kind in (VolumeKind.PVC, VolumeKind.HOSTPATH)
    kinds = (KUBERNETES,) if on_kubernetes else ON_HOSTS
    if spec.infra and spec.infra.split("/")[0] not in kinds:
        notes.error(
            fields.mark("infra"), "volume-infra",
            f"a volume of type `{spec.kind}` cannot be on `{spec.infra[:60]}`",
            f"its infra is one of: {', '.join(kinds)}",
        )  # fmt: skip
    typed = bool(fields.node.mark.flag)  # on the command line
    path = config.node.get("host_path") if config is not None else None
    if spec.kind in (VolumeKind.NFS, VolumeKind.HOSTPATH) and absent(path):
        notes.error(
            fields.mark("config"), "volume-path",
            f"a volume of type `{spec.kind}` needs a folder on the hosts",
            "say `--host-path /mnt/data`" if typed else "write `config: {host_path: /mnt/data}`",
        )  # fmt: skip
    if spec.kind is VolumeKind.PVC and not spec.use_existing and absent(fields.node.get("size")):
        notes.error(
            fields.node.mark, "volume-size", "a new claim needs a `size`",
            "say `--size 100Gi`, or `--use-existing` for one that is there" if typed else
            "write `size: 100Gi`, or `use_existing: true` for one that is there",
        )  # fmt: skip
    if spec.kind is VolumeKind.LOCAL and spec.use_existing and not spec.host_path:
        notes.error(
            fields.mark("use_existing"), "volume-path",
            "`use_existing` of a `local` volume needs the folder that it is",
            "say `--host-path /srv/data`" if typed else "write `config: {host_path: /srv/data}`",
        )  # fmt: skip
    if config is not None:
        _check_config(spec, config, notes)


def _check_config(spec: VolumeSpec, config: Fields, notes: Notes) -> None:
    """Keys that mean nothing for this type."""
    strange: list[str] = []
    if spec.kind not in (VolumeKind.PVC, VolumeKind.HOSTPATH):
        strange += [key for key in OF_KUBERNETES if key in config]
    if spec.kind is VolumeKind.PVC and "host_path" in config:
        strange.append("host_path")
    if "host" in config and not (spec.kind is VolumeKind.LOCAL and spec.infra.startswith("ssh/")):
        strange.append("host")
    for key in strange:
        hint = "it names the host of an `ssh/POOL`" if key == "host" else "remove it"
        notes.error(
            config.mark(key), "volume-config",
            f"`config.{key}` means nothing for a volume of type `{spec.kind}` on"
            f" `{spec.infra or 'any infra'}`", hint,
        )  # fmt: skip


def _check_names(nodes: list[Node], specs: list[VolumeSpec], notes: Notes) -> None:
    seen: set[str] = set()
    for node, spec in zip(nodes, specs, strict=True):
        if spec.name and spec.name in seen:
            notes.error(
                node.mark, "name-twice", f"the volume `{spec.name}` is described twice",
                "give each a name of its own",
            )  # fmt: skip
        seen.add(spec.name)
