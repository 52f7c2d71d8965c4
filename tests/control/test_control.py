"""The control plane as the server sees it: submit, wish, wait, remove."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from argosy.control import control as module
from argosy.control.control import Control
from argosy.errors import CapacityError, Conflict, InputError, NotFound
from argosy.infra.registry import InfraSettings
from argosy.model.group import Group, Intent, Phase, Verb
from argosy.model.ids import LeaseId
from argosy.model.needs import Need
from argosy.model.spec import GroupSpec, Workdir
from argosy.store.store import Store
from argosy.testing.builders import a_spec, a_task, newest
from tests.control.bench import QUICK, Bench, until

pytestmark = pytest.mark.anyio


@dataclass
class Served:
    """A control plane over an infra in memory."""

    control: Control
    bench: Bench

    async def submit(self, spec: GroupSpec | None = None, *, replace: bool = False) -> Group:
        return await self.control.submit(spec or a_spec(), source="source", replace=replace)

    async def running(self, spec: GroupSpec | None = None) -> Group:
        group = await self.submit(spec)
        await until(lambda: self.control.find(group.id).phase is Phase.RUNNING)
        await until(lambda: newest(self.control.find(group.id), "trainer-0").stage == 30)
        return self.control.find(group.id)

    async def over(self, group: Group) -> Group:
        await until(lambda: self.control.find(group.id).phase.final)
        return self.control.find(group.id)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Bench:
    """The infra that `local` is: in memory."""
    bench = Bench(folder, "local", ["h1"], 4.0)

    def open_infras(settings: InfraSettings) -> dict[str, Bench]:
        return {"local": bench}

    monkeypatch.setattr(module, "open_infras", open_infras)
    return bench


@asynccontextmanager
async def served(folder: Path, bench: Bench) -> AsyncIterator[Served]:
    """The control plane, up."""
    store = Store.open(folder / "store.db")
    control = Control(store, folder, QUICK)
    await bench.agents["h1"].start()
    await control.start()
    try:
        yield Served(control, bench)
    finally:
        await control.stop()
        await bench.agents["h1"].stop()
        store.close()


async def test_a_submitted_group_is_found_by_name_and_by_id(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        group = await here.submit()
        assert here.control.find("demo").id == here.control.find(group.id).id == group.id
        assert here.control.store.source(group.id) == "source"
        assert [one.id for one in here.control.groups(ended=False)] == [group.id]


async def test_ids_of_two_homes_differ_although_their_servers_started_together(
    folder: Path, opened: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "open_life", lambda _self, _now: 7)
    found = []
    for name in ("one", "two"):
        home = folder / name
        home.mkdir()
        async with served(home, opened) as here:
            found.append((await here.submit()).id)
    assert len(set(found)) == 2
    assert [one.rpartition("-7-")[2] for one in found] == ["1", "1"]


async def test_an_unknown_name_is_answered_with_the_near_ones(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        await here.submit()
        with pytest.raises(NotFound) as caught:
            here.control.find("dmeo")
        assert caught.value.hints[0] == "did you mean demo?"


async def test_a_live_name_is_a_conflict_that_says_how_to_go_on(
    folder: Path, opened: Bench
) -> None:
    async with served(folder, opened) as here:
        first = await here.submit()
        with pytest.raises(Conflict) as caught:
            await here.submit()
        assert first.id in caught.value.text
        assert any("--replace" in hint and "--name" in hint for hint in caught.value.hints)


async def test_a_replacement_whose_files_are_not_there_ends_nothing(
    folder: Path, opened: Bench
) -> None:
    async with served(folder, opened) as here:
        first = await here.submit()
        gone = a_spec(a_task(workdir=Workdir(path=str(folder / "nowhere"))))
        with pytest.raises(InputError, match="does not exist"):
            await here.submit(gone, replace=True)
        assert not here.control.find(first.id).phase.final
        assert not here.control.find(first.id).intents


async def test_replace_ends_the_live_group_first(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        first = await here.running()
        second = await here.submit(replace=True)
        assert here.control.find(first.id).phase is Phase.CANCELLED
        assert here.control.find("demo").id == second.id != first.id


async def test_a_group_that_a_failed_check_stopped_can_be_cancelled(
    folder: Path, opened: Bench
) -> None:
    async with served(folder, opened) as here:
        group = await here.running()
        entry = here.control._controller.entries[group.id]
        ghost = replace(entry.group.nodes[0], lease=LeaseId("ghost"))
        entry.group = replace(entry.group, nodes=(ghost,))
        here.control._controller.news(entry)
        await until(lambda: entry.broken)
        await here.control.intend(group.id, Intent(Verb.CANCEL, 0.0))
        ended = await here.over(group)
        assert (ended.phase, ended.cause) == (Phase.FAILED, "broken")
        await until(lambda: group.id not in here.control._controller.entries)
        assert not opened.held


async def test_snapshots_of_a_launch_that_was_cut_off_go_at_the_next_start(
    folder: Path, opened: Bench
) -> None:
    (folder / "snapshots" / "g1-1" / "0123").mkdir(parents=True)
    async with served(folder, opened):
        assert not (folder / "snapshots" / "g1-1").exists()


async def test_an_ended_name_may_be_used_again(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        first = await here.running()
        opened.agents["h1"].exit("trainer-0", 0)
        await here.over(first)
        second = await here.submit()
        assert second.id != first.id


async def test_a_group_that_can_never_fit_is_refused(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        large = a_spec(a_task(needs=(Need(cpus=400.0),)))
        with pytest.raises(CapacityError) as caught:
            await here.submit(large)
        assert caught.value.code == "plan/never-fits"
        assert "trainer" in caught.value.text
        assert here.control.groups(ended=True) == []


async def test_a_group_that_does_not_fit_now_waits(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        await here.running(a_spec(a_task(needs=(Need(cpus=3.0),))))
        second = await here.submit(a_spec(a_task(needs=(Need(cpus=3.0),)), name="second"))
        await until(lambda: "no-capacity" in [r.code for r in here.control.reasons(second.id)])


async def test_an_unknown_infra_is_refused_with_those_there_are(
    folder: Path, opened: Bench
) -> None:
    async with served(folder, opened) as here:
        with pytest.raises(InputError) as caught:
            await here.submit(a_spec(a_task(needs=(Need(infra="ssh/lab"),))))
        assert caught.value.code == "infra/unknown"
        assert caught.value.hints == ("there is local; or `--infra local`",)


async def test_files_that_are_missing_leave_no_group(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        gone = a_task(workdir=Workdir(path=str(folder / "nothing-here")))
        with pytest.raises(InputError):
            await here.submit(a_spec(gone))
        assert here.control.groups(ended=True) == []
        assert not list((folder / "snapshots").glob("*/*"))


async def test_a_wish_is_carried_out(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        group = await here.running()
        wish = Intent(Verb.CANCEL, here.control.clock.now(), by="ada")
        await here.control.intend(group.id, wish)
        ended = await here.over(group)
        assert (ended.phase, ended.text) == (Phase.CANCELLED, "cancelled by ada")


async def test_a_wish_for_a_group_that_is_over_is_a_conflict(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        group = await here.running()
        opened.agents["h1"].exit("trainer-0", 0)
        await here.over(group)
        with pytest.raises(Conflict):
            await here.control.intend(group.id, Intent(Verb.CANCEL, 0.0))
        with pytest.raises(NotFound):
            await here.control.intend(replace(group, id="g0-0").id, Intent(Verb.CANCEL, 0.0))


async def test_changed_wakes_when_the_record_moved(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        group = await here.running()
        version = here.control.find(group.id).version
        waiting = asyncio.create_task(here.control.changed(group.id, version))
        opened.agents["h1"].exit("trainer-0", 0)
        assert (await asyncio.wait_for(waiting, 10.0)).version > version


async def test_changed_answers_at_once_what_is_newer_already(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        group = await here.running()
        found = await asyncio.wait_for(here.control.changed(group.id, 0), 5.0)
        assert found.id == group.id


async def test_changed_wakes_when_only_the_reasons_did(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        group = await here.running()
        await until(lambda: here.control.reasons(group.id) == ())
        version = here.control.find(group.id).version
        waiting = asyncio.create_task(here.control.changed(group.id, version))
        opened.agents["h1"].freeze()
        assert (await asyncio.wait_for(waiting, 10.0)).version == version
        assert [one.code for one in here.control.reasons(group.id)] == ["agent-suspect"]
        opened.agents["h1"].thaw()


async def test_a_live_group_is_not_removed(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        group = await here.running()
        with pytest.raises(Conflict):
            await here.control.remove(group.id)
        assert here.control.find(group.id).id == group.id


async def test_a_removed_group_is_forgotten_with_its_logs(folder: Path, opened: Bench) -> None:
    async with served(folder, opened) as here:
        group = await here.running()
        opened.agents["h1"].exit("trainer-0", 0)
        await here.over(group)
        await here.control.remove(group.id)
        with pytest.raises(NotFound):
            here.control.find(group.id)
        assert {"op": "forget", "group": group.id} in opened.agents["h1"].told


async def test_an_expired_group_is_forgotten_with_its_logs(
    folder: Path, opened: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_DAYS", 0.0)
    async with served(folder, opened) as here:
        group = await here.running()
        opened.agents["h1"].exit("trainer-0", 0)
        await here.over(group)
        await until(lambda: not here.control.store.unfinished())
        expiring = asyncio.create_task(here.control._expire())
        await until(lambda: {"op": "forget", "group": group.id} in opened.agents["h1"].told)
        expiring.cancel()


async def test_a_group_removed_while_something_of_it_is_left_is_still_released(
    folder: Path, opened: Bench
) -> None:
    async with served(folder, opened) as here:
        group = await here.running()
        opened.keep = True
        opened.agents["h1"].exit("trainer-0", 0)
        await opened.agents["h1"].stop()
        await until(lambda: here.control.find(group.id).phase.final)
        await opened.agents["h1"].start()
        await here.control.remove(group.id)
        assert opened.held != {}
        opened.keep = False
        opened.moved()
        await until(lambda: opened.held == {})


async def test_what_is_in_the_store_is_taken_up_by_the_next_server(
    folder: Path, opened: Bench
) -> None:
    async with served(folder, opened) as here:
        group = await here.running()
        life = here.control.life
    async with served(folder, opened) as here:
        assert here.control.life > life
        await until(lambda: opened.agents["h1"].hellos[-1]["life"] == here.control.life)
        opened.agents["h1"].exit("trainer-0", 0)
        assert (await here.over(group)).phase is Phase.SUCCEEDED
