"""Why a group waits, in the words that people know."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from argosy.model.action import Reason
from argosy.server.context import Context
from argosy.server.streams import reasons_of
from tests.server.rig import a_server

pytestmark = pytest.mark.anyio


async def test_group_ahead_is_told_by_its_name(folder: Path) -> None:
    async with a_server(folder) as rig:
        ref = await rig.running()
        here = Context(rig.control, folder, 0.0, stop=lambda: None, closing=asyncio.Event())
        group = rig.control.find(ref)
        entry = rig.control._controller.entries[group.id]
        texts = (f"group {ref} is being placed on local", "group gone-1 is being placed on local")
        entry.reasons = tuple(Reason("queue", "", text) for text in texts)
        told = reasons_of(here, group)
        assert [one.text for one in told] == [
            "group demo is being placed on local",
            "group gone-1 is being placed on local",
        ]
