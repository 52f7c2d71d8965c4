"""Volumes: made from a file or from flags, listed, deleted."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from argosy.errors import ArgosyError
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
    """Make the volumes of a file, or change what may change of those that are there. One that is
    given by flags is only made: it changes none.
    """
    specs: tuple[VolumeSpec, ...]
    new = bool(body.flags)
    if body.flags:
        specs = (volume_of_flags(body.flags),)
    else:
        specs = await asyncio.to_thread(parse_volumes, body.text, body.file)
    for spec in specs:
        here.control.volumes.check(spec, new=new)
    made: list[dict[str, Any]] = []
    for spec in specs:
        try:
            volume, change = await here.control.volumes.apply(spec, new=new)
        except ArgosyError as error:
            before = [f"{one['name']} is {one['change']}" for one in made]
            error.hints = (*error.hints, *before)
            raise
        made.append({**codec.encode(volume_row(volume)), "change": str(change)})
    return answer({"volumes": made})


@router.delete("/volumes/{name}")
async def delete(name: str, here: Here, forget: bool = False) -> Response:
    """Delete a volume that no group uses; its bytes too, where they are ours. `forget`: though who
    has them does not answer.
    """
    volume, stays = await here.control.volumes.delete(name, forget=forget)
    return answer({"volume": codec.encode(volume_row(volume)), "stays": stays})
