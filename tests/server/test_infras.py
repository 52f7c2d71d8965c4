"""Infras over the API: hosts and holders, offers, strangers, hosts that are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.errors import Conflict, InputError, InputErrors, NotFound
from argosy.model.ids import LeaseId
from tests.server.rig import a_server
from tests.server.scripted import HOST

pytestmark = pytest.mark.anyio

STRANGER = LeaseId("g5eed01-6b0f3a2c-1.6b0f3a2c-4")
OF_ALL = LeaseId("g5eed01-6b0f3a2c-1.0")


async def test_hosts_are_listed_with_who_holds_them(folder: Path) -> None:
    async with a_server(folder) as rig:
        ref = await rig.running()
        rig.infra.leases.add(STRANGER)
        (told,) = (await rig.get("infra/hosts"))["infras"]
        (host,) = told["hosts"]
        assert (told["name"], told["problem"], told["lost"]) == ("local", "", [])
        assert (host["host"], host["state"], host["total"]["cpus"]) == (HOST, "up", 64.0)
        by_group = {one["group"]: (one["name"], one["nodes"]) for one in host["holders"]}
        assert by_group == {ref: ("demo", 3), "g5eed01-6b0f3a2c-1": ("", 1)}


async def test_a_check_of_a_name_tells_that_one_with_its_holders(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        (every,) = (await rig.get("infra"))["infras"]
        (one,) = (await rig.get("infra?name=local"))["infras"]
        (listed,) = (await rig.get("infra/hosts"))["infras"]
        assert every["hosts"] == one["hosts"] == listed["hosts"]
        assert [(held["name"], held["nodes"]) for held in one["hosts"][0]["holders"]] == [
            ("demo", 3)
        ]
        with pytest.raises(NotFound) as unknown:
            await rig.get("infra?name=ssh/lab")
        assert unknown.value.code == "infra/unknown"
        await rig.post("infra/lost", {"host": HOST, "force": True})
        (gone,) = (await rig.get("infra?name=local"))["infras"]
        assert gone["hosts"][0]["state"] == "lost"


async def test_offers_say_now_or_never(folder: Path) -> None:
    async with a_server(folder) as rig:
        now = await rig.get("infra/offers?cpus=2")
        assert now["need"] == "2 cpus"
        (one,) = now["infras"]
        assert (one["verdict"], one["fitting"]) == ("now", [HOST])
        never = await rig.get("infra/offers?need=H100:8&need=80GB%2B:2&infra=local")
        assert never["need"] == "H100:8 or 80GB+:2"
        (one,) = never["infras"]
        assert (one["verdict"], one["text"]) == ("never", ["local has no accelerators"])


async def test_a_wrong_need_is_told_in_the_words_of_the_file(folder: Path) -> None:
    async with a_server(folder) as rig:
        with pytest.raises(InputError) as caught:
            await rig.get("infra/offers?need=H100:x")
        assert "`resources.accelerators` takes a card" in caught.value.text
        with pytest.raises(NotFound) as unknown:
            await rig.get("infra/offers?infra=loca")
        assert "did you mean local?" in unknown.value.text


async def test_strangers_are_shown_and_ended_only_when_asked(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        mine = set(rig.infra.leases)
        rig.infra.leases |= {STRANGER, OF_ALL}
        shown = await rig.get("infra/strangers?infra=local")
        assert [one["lease"] for one in shown["leases"]] == sorted([OF_ALL, STRANGER])
        assert {one["since"] for one in shown["leases"]} == {float(0x6B0F3A2C)}
        assert not any(one["own_home"] for one in shown["leases"])
        body = {"infra": "local", "leases": [STRANGER, OF_ALL, *mine]}
        ended = await rig.post("infra/clean", body)
        assert ended["released"] == sorted([OF_ALL, STRANGER])
        assert ended["left"] == {}
        assert rig.infra.leases == mine  # what belongs to a group is let alone
        with pytest.raises(NotFound):
            await rig.get("infra/strangers?infra=ssh/lab")


async def test_a_host_that_answers_is_lost_only_by_force(folder: Path) -> None:
    async with a_server(folder) as rig:
        await rig.running()
        with pytest.raises(Conflict) as caught:
            await rig.post("infra/lost", {"host": HOST})
        assert caught.value.code == "infra/host-answers"
        with pytest.raises(Conflict) as used:
            await rig.post("infra/forget", {"host": HOST})
        assert used.value.code == "infra/host-in-use"
        said = await rig.post("infra/lost", {"host": HOST, "force": True, "by": "ada"})
        assert said == {"infra": "local", "host": HOST, "groups": ["demo"]}
        (told,) = (await rig.get("infra/hosts"))["infras"]
        assert (told["hosts"][0]["state"], told["lost"][0]["by"]) == ("lost", "ada")
        group = rig.control.find("demo").id
        await rig.until(
            lambda: all(one.cause == "host-lost" for one in rig.control.find(group).attempts)
        )
        (one,) = (await rig.get("infra/offers"))["infras"]
        assert one["verdict"] == "not-now"
        assert any("`argosy infra lost` says that it is gone" in text for text in one["text"])
        forgotten = await rig.post("infra/forget", {"host": HOST})
        assert (forgotten["infra"], forgotten["host"]) == ("local", HOST)
        await rig.until(lambda: rig.phase(group) == "RUNNING")


async def test_of_a_host_that_answers_there_is_nothing_to_forget(folder: Path) -> None:
    async with a_server(folder) as rig:
        with pytest.raises(Conflict, match="nothing to forget: h1 of local answers") as caught:
            await rig.post("infra/forget", {"host": HOST})
        assert f"`argosy infra lost {HOST}` first" in caught.value.hints[0]


async def test_a_need_with_two_mistakes_tells_both(folder: Path) -> None:
    async with a_server(folder) as rig:
        with pytest.raises(InputErrors) as caught:
            await rig.get("infra/offers?need=H100:x&cpus=-3")
        texts = " ".join(one.text for one in caught.value.errors)
        assert "`resources.accelerators`" in texts
        assert "`resources.cpus`" in texts
        assert not any(one.place for one in caught.value.errors)  # there is no file
        assert (await rig.get("infra/offers?cpus=1"))["need"] == "1 cpu"


async def test_an_infra_that_fails_is_told_as_not_working(folder: Path) -> None:
    async def fails() -> None:
        raise PermissionError(13, "Permission denied", "/dev/cards")

    async with a_server(folder) as rig:
        rig.infra.check = fails  # type: ignore[method-assign, assignment]
        (told,) = (await rig.get("infra"))["infras"]
        assert (told["works"], "/dev/cards" in told["problems"][0]) == (False, True)
