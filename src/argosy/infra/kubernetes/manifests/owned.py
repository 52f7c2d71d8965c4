"""Whose a group's things are: the anchor owns what is group-wide, and all of it goes with that."""

from __future__ import annotations

from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.marks import Json
from argosy.model.ids import GroupId


def owned(group: GroupId, anchor_uid: str) -> Json:
    """The part of the metadata that says so; {} while the anchor's uid is not known."""
    if not anchor_uid:
        return {}
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": marks.anchor_name(group),
        "uid": anchor_uid,
    }
    return {"ownerReferences": [owner]}
