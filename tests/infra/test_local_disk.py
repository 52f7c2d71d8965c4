"""A local infra on a disk that is full: refused in words, and nobody is cut short."""

from __future__ import annotations

import asyncio

import pytest

from argosy.errors import InfraError
from tests.infra.test_local import a_machine, seen, wants


def test_a_disk_that_is_full_refuses_and_cancels_nobody(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    async def story():
        infra = a_machine(tmp_path, "one")
        with monkeypatch.context() as patched:
            patched.setattr("argosy.infra.local.leases.os.pwrite", full)
            with pytest.raises(InfraError) as caught:
                await infra.acquire(wants(1, 1))
        assert caught.value.code == "local/disk-full"
        assert not await seen(infra)

    asyncio.run(story())
