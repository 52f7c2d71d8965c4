"""Volumes over the API: made, changed, listed, refused while in use, deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.control import control
from argosy.errors import Conflict, InputErrors, NotFound, Unreachable
from argosy.sdk.aio import Client
from tests.server.rig import a_server

pytestmark = pytest.mark.anyio

GROUP = "name: demo\nvolumes: {/data: data}\nrun: echo\n"


async def test_a_volume_lives_longer_than_its_groups(folder: Path) -> None:
    async with a_server(folder) as rig:
        with pytest.raises(NotFound, match="mounts the volume 'data'"):
            await rig.launch(GROUP)
        with pytest.raises(NotFound):
            await rig.post("plan", {"text": GROUP})
        body = {"file": "v.yaml", "text": "name: data\nsize: 1Gi\n"}
        (made,) = (await rig.post("volumes", body))["volumes"]
        assert (made["change"], made["type"], made["state"]) == ("created", "local", "ready")
        (again,) = (await rig.post("volumes", body))["volumes"]
        assert (again["change"], again["id"]) == ("unchanged", made["id"])

        ref = await rig.running(GROUP)
        (row,) = (await rig.get("volumes"))["volumes"]
        assert (row["state"], row["used_by"]) == ("in use", ["demo"])
        with pytest.raises(Conflict, match="in use by demo"):
            await rig.call("DELETE", "volumes/data")
        await rig.post(f"groups/{ref}/cancel", {"now": True})
        await rig.until(lambda: not rig.control.volumes.every()[0].used_by)
        await rig.call("DELETE", "volumes/data")
        assert (await rig.get("volumes"))["volumes"] == []
        with pytest.raises(NotFound, match="there is no volume"):
            await rig.call("DELETE", "volumes/data")


async def test_groups_of_which_something_may_use_a_volume(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One goes by force alone; one that is let go of meanwhile is waited for."""
    async with a_server(folder) as rig:
        await rig.post("volumes", {"file": "v.yaml", "text": "name: data\nsize: 1Gi\n"})
        refs = [await rig.running(GROUP.replace("demo", name)) for name in ("demo", "other")]
        rig.infra.keeps = rig.infra.deaf = True  # their host is out of sight
        await rig.infra.close()
        for ref in refs:
            await rig.post(f"groups/{ref}/cancel", {"now": True})
        await rig.until(lambda: all(rig.control.find(ref).phase.final for ref in refs))
        with monkeypatch.context() as hurry:
            hurry.setattr(control, "LET_GO_TIMEOUT", 0.1)
            with pytest.raises(Conflict, match="may be left that uses the volume 'data'"):
                await rig.call("DELETE", f"groups/{refs[0]}")
        assert (await rig.call("DELETE", f"groups/{refs[0]}?force=1"))[1] == {"ok": True}
        with pytest.raises(Conflict, match="in use by other"):
            await rig.call("DELETE", "volumes/data")
        rig.infra.keeps = False
        monkeypatch.setattr(control, "LET_GO_TIMEOUT", 60.0)  # on a busy machine, too
        assert (await rig.call("DELETE", f"groups/{refs[1]}"))[1] == {"ok": True}
        await rig.call("DELETE", "volumes/data")


async def test_a_wrong_file_names_its_places(folder: Path) -> None:
    async with a_server(folder) as rig:
        with pytest.raises(InputErrors) as caught:
            await rig.post("volumes", {"file": "v.yaml", "text": "name: A\nsize: big\n"})
        assert [str(one.place) for one in caught.value.errors] == ["v.yaml:1:7", "v.yaml:2:7"]


async def test_the_client_has_the_same_words(folder: Path) -> None:
    async with a_server(folder):
        client = Client(folder, start=False)
        (made,) = await client.create_volume({"name": "data", "size": "2Gi"})
        assert (made.change, made.row.size_gib) == ("created", 2.0)
        (again,) = await client.create_volume({"name": "data", "size": "2Gi"})
        assert (again.change, again.row.id) == ("unchanged", made.row.id)
        with pytest.raises(Conflict, match="is there already, with another size"):
            await client.create_volume({"name": "data"})
        assert [row.size_gib for row in await client.volumes()] == [2.0]
        (made,) = await client.apply_volumes("name: data\nsize: 3Gi\n")
        assert made.change == "changed"
        assert [row.size_gib for row in await client.volumes()] == [3.0]
        assert (await client.delete_volume("data")).row.name == "data"
        assert await client.volumes() == []


async def test_a_plan_without_its_volumes_shows_no_secret(folder: Path) -> None:
    text = "secrets: {TOKEN: hunter2222}\nvolumes: {/a/$TOKEN: x, /b/$TOKEN: y}\nrun: echo\n"
    async with a_server(folder) as rig:
        for path in ("plan", "groups"):
            with pytest.raises(InputErrors, match="2 errors") as caught:
                await rig.post(path, {"text": text})
            assert "hunter2222" not in str(caught.value.fields())


async def test_one_can_be_forgotten_whose_infra_is_no_more(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.post("volumes", {"text": "name: data\n"})
        del rig.control.infras["local"]
        with pytest.raises(Unreachable, match="which is not known here any more"):
            await rig.call("DELETE", "volumes/data")
        end = await Client(folder, start=False).delete_volume("data", forget=True)
        assert (end.row.name, "not known here any more" in end.stays) == ("data", True)


async def test_of_a_file_that_cannot_be_applied_whole_nothing_is_made(folder: Path) -> None:
    async with a_server(folder) as rig:
        text = "name: a\n---\nname: b\ninfra: ssh/nowhere\n"
        with pytest.raises(NotFound, match="volume 'b': no infra 'ssh/nowhere'"):
            await rig.post("volumes", {"text": text})
        assert (await rig.get("volumes"))["volumes"] == []
