"""Volumes: made from a file or from flags, listed, deleted."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from argosy.model import codec
from argosy.model.volumes import VolumeSpec
from argosy.server.answers import answer
from argosy.server.context import Here
from argosy.spec.volumes import parse_volumes, volume_of_flags
from argosy.views.volumes import volume_row

router = APIRouter(prefix="/v1", tags=["volumes"])

TEXT_MOST: Final = 2**20  # characters of a file


class VolumesBody(BaseModel):
    """A volume file as it was written, or in its place what each key of one is."""

    model_config = ConfigDict(extra="ignore")

    file: str = "volume.yaml"  # how messages name it
    text: str = Field("", max_length=TEXT_MOST)
    flags: dict[str, str] = {}  # "size": "100Gi", "config.host_path": "/mnt/data"


@router.get("/volumes")
async def volumes(here: Here) -> Response:
    """All volumes, by name, with the groups that use them."""
    found = await asyncio.to_thread(here.control.volumes.every)
    rows = [codec.encode(volume_row(one.volume, one.used_by)) for one in found]
    return answer({"volumes": rows})


@router.post("/volumes")
async def apply(body: VolumesBody, here: Here) -> Response:
    """Make the volumes of a file, or change what may change of those that are there."""
    specs: tuple[VolumeSpec, ...]
    if body.flags:
        specs = (volume_of_flags(body.flags),)
    else:
        specs = await asyncio.to_thread(parse_volumes, body.text, body.file)
    made: list[dict[str, Any]] = []
    for spec in specs:
        volume, change = await here.control.volumes.apply(spec)
        made.append({**codec.encode(volume_row(volume)), "change": str(change)})
    return answer({"volumes": made})


@router.delete("/volumes/{name}")
async def delete(name: str, here: Here) -> Response:
    """Delete a volume that no group uses; its bytes too, where they are ours."""
    volume = await here.control.volumes.delete(name)
    return answer({"volume": codec.encode(volume_row(volume))})
