"""The word that a host is gone: in looks, in offers, over a restart, and until it is back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from argosy.clock import Clock
from argosy.control.lost_hosts import LostHosts
from argosy.errors import Conflict, InputError, NotFound
from argosy.infra.api import HostView
from argosy.model.group import Intent, LeaseState, Verb
from argosy.model.ids import LeaseId
from argosy.model.needs import Capacity
from argosy.model.observed import Look, SeenLease, SeenState
from argosy.model.plan import Offer
from argosy.store.store import Store
from argosy.testing.builders import a_lease, a_spec, a_task, newest
from tests.control.bench import Bench, World, until, world

pytestmark = pytest.mark.anyio

SPEC = a_spec(a_task("trainer"))
GONE, UP = SeenState.GONE, SeenState.UP


class Listed(Bench):
    """A bench that says which of its hosts are up."""

    async def hosts(self) -> list[HostView]:
        room = Capacity(8.0, 64.0)
        return [
            HostView(host, room, room, "up" if agent.awake else "frozen")
            for host, agent in self.agents.items()
        ]

    async def check(self) -> None:
        raise AssertionError("nobody asks")

    async def forget_host(self, host: str) -> None:
        self.held = {one: at for one, at in self.held.items() if at[0] != host}
        self.moved()


def codes(here: World, entry) -> list[str]:
    return [event.code for _, event in here.store.events(entry.group.id)]


async def lost(here: World, host: str, **said) -> None:
    await here.controller.lost_hosts.say(host, **{"force": False, **said})


async def silent(here: World, host: str) -> None:
    """The host says nothing any more, and that was noticed."""
    here.bench.agents[host].freeze()
    links = here.controller.links
    await until(lambda: (link := links.get(("local", host))) is None or link.silent)


async def test_a_lost_host_is_replaced_and_what_comes_back_is_released(folder: Path) -> None:
    async with world(folder, hosts=("h1", "h2")) as here:
        entry = await here.running(SPEC)
        old = newest(entry.group, "trainer-0")
        here.bench.keep = True  # it cannot be told either
        await silent(here, old.host)
        assert entry.group.attempts == (old,)  # a doubt, and nothing else
        await lost(here, old.host, by="ada")
        await until(lambda: newest(entry.group, "trainer-0").number == 2)
        await until(lambda: newest(entry.group, "trainer-0").stage == 30)
        new = newest(entry.group, "trainer-0")
        assert (new.number, new.host != old.host) == (2, True)
        first = entry.group.attempts[0]
        assert (first.outcome, first.cause) == ("lost", "host-lost")
        assert first.text == "`argosy infra lost`: said to be gone by ada"
        here.bench.agents[old.host].exit("trainer-0", 7)
        here.bench.keep = False
        here.bench.agents[old.host].thaw()
        await until(lambda: old.lease in here.bench.released)
        await until(lambda: old.lease not in here.bench.held)
        await until(lambda: list(here.controller.lost_hosts) == [])
        await until(lambda: [one.id for one in entry.group.leases] == [new.lease])
        assert newest(entry.group, "trainer-0").number == 2
        assert entry.group.attempts[0].exit_code is None  # what the old one said was refused
        assert "host-back" in codes(here, entry)


async def test_a_word_survives_a_restart_and_holds_for_what_is_not_seen(folder: Path) -> None:
    async with world(folder, hosts=("h1", "h2")) as here:
        entry = await here.running(SPEC)
        await silent(here, (old := newest(entry.group, "trainer-0")).host)
        await lost(here, old.host)
        await until(lambda: newest(entry.group, "trainer-0").number == 2)
        [word] = here.controller.lost_hosts
        again = LostHosts(here.store, here.clock, {"local": here.bench}, here.controller)
        assert list(again) == [word]


async def test_a_host_that_answers_is_given_up_only_by_force(folder: Path) -> None:
    async with world(folder, hosts=("h1", "h2")) as here:
        entry = await here.running(SPEC)
        old = newest(entry.group, "trainer-0")
        with pytest.raises(Conflict) as caught:
            await lost(here, old.host)
        assert caught.value.code == "infra/host-answers"
        assert "--force" in caught.value.hints[1]
        await lost(here, old.host, force=True)
        await until(lambda: newest(entry.group, "trainer-0").number == 2)
        await until(lambda: newest(entry.group, "trainer-0").stage == 30)
        assert newest(entry.group, "trainer-0").host != old.host
        await until(lambda: old.lease not in here.bench.held)  # it answers, so it was told
        [word] = here.controller.lost_hosts  # it was not silent since: the word stands
        assert word.forced


async def test_a_finished_group_leaves_the_loop_when_its_host_is_forgotten(folder: Path) -> None:
    async with world(folder, hosts=("h1",), kind=Listed) as here:
        entry = await here.running(SPEC)
        lease = entry.group.leases[0].id
        here.bench.keep = True  # the host cannot be told
        await silent(here, "h1")
        with pytest.raises(Conflict) as caught:
            await here.controller.lost_hosts.forget("h1")
        assert caught.value.code == "infra/host-in-use"
        await lost(here, "h1")
        intent = Intent(Verb.CANCEL_NOW, here.clock.now())
        after = await here.store.intend(entry.group.id, intent)
        here.controller.taken(entry, after)
        await until(lambda: entry.group.phase.final)
        assert not entry.group.clean
        assert entry.group.unreachable == ("h1",)
        assert await here.controller.lost_hosts.forget("h1") == ("local", [lease])
        await until(lambda: entry.group.clean)
        assert list(here.controller.lost_hosts) == []


async def test_an_infra_without_notes_has_forgotten_hosts_hidden_until_they_are_back(
    folder: Path,
) -> None:
    async with world(folder, hosts=("h1",)) as here:
        entry = await here.running(SPEC)
        lease = entry.group.leases[0].id
        here.bench.keep = True
        await silent(here, "h1")
        await lost(here, "h1")
        await until(lambda: entry.group.leases[0].state is LeaseState.RELEASING)
        await here.controller.lost_hosts.forget("h1")
        await until(lambda: lease not in {one.id for one in entry.group.leases})
        assert lease in here.bench.held
        here.bench.keep = False
        here.bench.agents["h1"].thaw()
        await until(lambda: lease not in here.bench.held)
        await until(lambda: newest(entry.group, "trainer-0").number == 2)


async def test_unknown_and_ambiguous_hosts_are_named(folder: Path) -> None:
    other = Listed(folder / "x", "local/x", (), 8.0)
    async with world(folder, infras={"local/x": other}, kind=Listed) as here:
        other.agents = {"h1": here.bench.agents["h1"]}
        with pytest.raises(NotFound) as unknown:
            await lost(here, "h3")
        assert unknown.value.hints == ("there is h1",)
        with pytest.raises(InputError) as twice:
            await lost(here, "h1")
        assert twice.value.text == "local and local/x both have a host 'h1'"
        here.bench.agents["h1"].freeze()
        await lost(here, "h1", infra="local/x")
        assert [(one.infra, one.host) for one in here.controller.lost_hosts] == [("local/x", "h1")]


# What it makes of looks and offers


@pytest.fixture
async def words(folder: Path):
    class Alone:
        entries: dict = {}
        links: dict = {}

        def look(self, infra: str) -> None: ...

        def freed(self, infra: str) -> None: ...

    bench = Listed(folder, "local", ("h1", "h2"), 8.0)
    for agent in bench.agents.values():
        agent.freeze()
    store = Store.open(folder / "store.db")
    found = LostHosts(store, Clock(0.0), {"local": bench}, Alone())
    await found.say("h1", force=False)
    yield found
    store.close()


def seen(lease: str, host: str) -> SeenLease:
    return SeenLease(LeaseId(lease), UP, host)


async def test_a_look_shows_what_is_on_a_lost_host_as_gone(words: LostHosts) -> None:
    look = Look("local", 5.0, (seen("g1.1-1", "h1"), seen("g1.1-2", "h2"), seen("g1.0", "")))
    found = words.applied(look, ())
    assert {one.lease: one.state for one in found.leases} == {
        "g1.1-1": GONE, "g1.1-2": UP, "g1.0": UP,
    }  # fmt: skip
    assert words.applied(replace(look, infra="local/x"), ()) == replace(look, infra="local/x")


async def test_what_a_record_has_there_is_gone_though_nothing_is_seen(words: LostHosts) -> None:
    on = [a_lease("trainer-0"), a_lease("trainer-1", count=2, host="h2")]
    blind = Look("local", 5.0, blind_all=True)
    assert [one.lease for one in words.applied(blind, on).leases] == [on[0].id]
    released = replace(on[0], state=LeaseState.RELEASING)
    whole = Look("local", 5.0)
    assert words.applied(whole, [released]).leases == ()  # absence says that it is over
    hidden = Look("local", 5.0, blind=frozenset({released.id}))
    assert [one.state for one in words.applied(hidden, [released]).leases] == [GONE]


async def test_a_lost_host_offers_nothing(words: LostHosts) -> None:
    room = Capacity(8.0, 64.0)
    one, two = words.offered([Offer("local", "h1", room, room), Offer("local", "h2", room, room)])
    assert (one.count, one.silent) == (0, "`argosy infra lost` says that it is gone")
    assert (two.count, two.silent) == (1, "")
