"""The user's word that a host is gone (`argosy infra lost HOST`), and what it makes of a look.

In every look the leases on such a host are GONE, which is evidence for `decide` like any other. The
word is kept in the store. It holds until `argosy infra forget HOST`, or until the host is seen
again and every record has taken it in: what is found there then is released, as every lease that
was given up.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

from argosy.clock import Clock
from argosy.control.entry import Entry
from argosy.control.links import AgentLink
from argosy.errors import ArgosyError, Conflict, InputError, NotFound
from argosy.infra.api import Checks, Forgets, HostView, Infra
from argosy.model.action import Event
from argosy.model.group import Lease, LeaseState
from argosy.model.ids import GroupId, InfraName, LeaseId, group_of
from argosy.model.observed import Look, SeenLease, SeenState
from argosy.model.plan import Offer
from argosy.store.store import Store

log = logging.getLogger("argosy.control.lost_hosts")

KEPT_AS: Final = "lost-hosts"  # in the store
SAID: Final = "`argosy infra lost`"
LOOK_EVERY: Final = 2.0  # seconds between two looks for hosts that are back
HOSTS_TIMEOUT: Final = 10.0  # for an infra to name its hosts
NAMED: Final = 10  # hosts in a hint
UP: Final = "up"  # of HostView.state
TAKEN_IN: Final = 20.0  # seconds for every record to take the word in
PLANNED: Final = 1.0  # seconds until a plan that is being made now has been taken in
STEP: Final = 0.05


Views = dict[str, HostView]  # by host


@dataclass(frozen=True, slots=True)
class Word:
    """One host that was said to be gone."""

    infra: InfraName
    host: str
    at: float  # when it was said
    by: str = ""
    forced: bool = False  # it answered then
    silent: bool = False  # it was silent since
    forgotten: bool = False  # nothing of it counts any more
    leases: tuple[LeaseId, ...] = ()  # that it held then; some infras call a lease's place a pod

    @property
    def text(self) -> str:
        """What a lease on it is told to be gone by."""
        by = f" by {self.by}" if self.by else ""
        return f"{SAID}: said to be gone{by}"


class Rim(Protocol):
    """What is needed of the controller."""

    entries: dict[GroupId, Entry]
    links: dict[tuple[InfraName, str], AgentLink]

    def look(self, infra: InfraName) -> None:
        """Look at that infra soon."""

    def freed(self, infra: InfraName) -> None:
        """There is more room on that infra."""


class LostHosts:
    """Every host that was said to be gone."""

    def __init__(
        self, store: Store, clock: Clock, infras: Mapping[InfraName, Infra], rim: Rim
    ) -> None:
        self._store, self._clock, self._infras, self._rim = store, clock, infras, rim
        words = [_word(one) for one in json.loads(store.kept(KEPT_AS) or "[]")]
        self._words = {(one.infra, one.host): one for one in words}
        self._there = asyncio.Event()  # set while there are words
        self._changing = asyncio.Lock()
        if self._words:
            self._there.set()

    def __iter__(self) -> Iterator[Word]:
        return iter(tuple(self._words.values()))

    # What it makes of looks and offers

    def applied(self, look: Look, leases: Iterable[Lease]) -> Look:
        """The look with what is on lost hosts GONE, and nothing of forgotten ones.

        `leases`: those of all records on that infra; a host that is not seen shows nothing.
        """
        words = {one.host: one for one in self._words.values() if one.infra == look.infra}
        if not words:
            return look
        host_by_lease = {one.id: _host(one) for one in leases if _shows(one, look)}
        host_by_lease |= {one.lease: one.host for one in look.leases if one.host}
        held = {lease: word for word in words.values() for lease in word.leases}
        word_by_lease = {
            lease: words.get(host) or held[lease]
            for lease, host in host_by_lease.items()
            if host in words or lease in held
        }
        rest = tuple(one for one in look.leases if one.lease not in word_by_lease)
        gone = tuple(
            SeenLease(lease, SeenState.GONE, host=word.host, text=word.text)
            for lease, word in word_by_lease.items()
            if not word.forgotten
        )
        forgotten = {lease for lease, word in word_by_lease.items() if word.forgotten}
        return replace(look, leases=rest + gone, blind=look.blind - forgotten)

    def offered(self, offers: Iterable[Offer]) -> list[Offer]:
        """The offers; a lost host offers nothing now, and says why."""
        why = f"{SAID} says that it is gone"
        return [
            replace(one, count=0, silent=why) if (one.infra, one.host) in self._words else one
            for one in offers
        ]

    # What the user says

    async def say(
        self, host: str, infra: InfraName = "", *, by: str = "", force: bool
    ) -> tuple[Word, list[str]]:
        """The host is gone; the word, and the names of the groups that count on it.

        Raises NotFound, InputError (on two infras), Conflict (it answers).
        """
        name, views = await self._only(host, infra)
        answers = self._answers(name, host, views)
        if not answers:  # one that is visited for the first time may answer only the second time
            views = await self._views(name) or views
            answers = self._answers(name, host, views)
        if answers and not force:
            raise Conflict(
                f"{host} of {name} answers: it is not gone",
                code="infra/host-answers",
                hint=(
                    "`argosy restart GROUP/TASK/INDEX` replaces a node that misbehaves",
                    f"`argosy infra lost {host} --force` gives it up all the same, and ends "
                    "what runs there",
                ),
            )
        holds = {LeaseId(one) for one in views[host].holders} if host in views else set()
        holds |= {lease.id for _, lease in self._on(name, host)}
        word = Word(name, host, self._clock.now(), by, answers, leases=tuple(sorted(holds)))
        await self._keep(name, host, word)
        groups = sorted({entry.group.spec.name for entry in self._live(name, host)})
        log.warning("host-said-lost", extra={"infra": name, "host": host, "by": by})
        self._rim.look(name)
        return word, groups

    async def forget(self, host: str, infra: InfraName = "") -> tuple[InfraName, list[LeaseId]]:
        """Give up all that is on a host; its infra, and the leases given up.

        Raises NotFound, InputError (on two infras), Conflict (nodes live there, and nobody said
        that it is lost; or it answers, and nothing waits for it).
        """
        name, views = await self._only(host, infra)
        if (name, host) in self._words:
            await self._until_taken_in(name, host)
        if live := self._live(name, host):
            groups = sorted({entry.group.spec.name for entry in live})
            raise Conflict(
                f"{host} of {name} has nodes of {', '.join(groups)}",
                code="infra/host-in-use",
                hint=f"`argosy infra lost {host}` first, when it is gone",
            )
        given_up = [lease.id for _, lease in self._on(name, host)]
        if not given_up and (name, host) not in self._words and self._answers(name, host, views):
            raise Conflict(
                f"there is nothing to forget: {host} of {name} answers, and nothing waits for it",
                code="infra/host-answers",
                hint=f"`argosy infra lost {host}` first, once it is gone",
            )
        known, kept = self._infras[name], None
        if isinstance(known, Forgets):
            await known.forget_host(host)
        elif not self._answers(name, host, views):
            kept = Word(name, host, self._clock.now(), forgotten=True, leases=tuple(given_up))
        await self._keep(name, host, kept)
        log.warning("host-forgotten", extra={"infra": name, "host": host, "leases": len(given_up)})
        self._counts_again(name)
        return name, given_up

    # Hosts that are back

    async def mind(self) -> None:
        """Take words back for hosts that are seen again, until the task is cancelled."""
        while True:
            await self._there.wait()
            for name in {one.infra for one in self._words.values()} & set(self._infras):
                try:
                    await self._mind(name)
                except (ArgosyError, OSError) as error:  # the next time will tell
                    log.warning("lost-hosts", extra={"infra": name, "why": str(error)})
            await self._clock.sleep(LOOK_EVERY)

    async def _mind(self, name: InfraName) -> None:
        views = await self._views(name)
        if views is None:
            return
        for word in [one for one in self._words.values() if one.infra == name]:
            if not self._answers(name, word.host, views):
                if not word.silent:
                    await self._keep(name, word.host, replace(word, silent=True))
            elif (word.silent or not word.forced) and not self._live(name, word.host):
                await self._keep(name, word.host, None)
                await self._tell_back(word)

    async def _tell_back(self, word: Word) -> None:
        log.warning("host-back", extra={"infra": word.infra, "host": word.host})
        text = f"{word.host} of {word.infra} is seen again: what was given up there is ended"
        groups = {group_of(lease) for lease in word.leases}
        for entry in [self._rim.entries[one] for one in groups & self._rim.entries.keys()]:
            event = Event(self._clock.now(), "host-back", "", text)
            await self._store.note(entry.group, event)
            entry.tell_changed()
        self._counts_again(word.infra)

    def _counts_again(self, infra: InfraName) -> None:
        """There may be more room there, also for whose plan is being made just now."""
        self._rim.look(infra)
        self._rim.freed(infra)
        asyncio.get_running_loop().call_later(PLANNED, self._rim.freed, infra)

    # Small things

    def _on(self, infra: InfraName, host: str) -> Iterator[tuple[Entry, Lease]]:
        """What the records have on that host."""
        word = self._words.get((infra, host))
        held = word.leases if word is not None else ()
        for entry in list(self._rim.entries.values()):
            for lease in entry.group.leases:
                there = _host(lease) == host or lease.id in held
                if lease.placement.infra == infra and there:
                    yield entry, lease

    def _live(self, infra: InfraName, host: str) -> list[Entry]:
        """The groups that still count on something there, but those that a failed check stopped."""
        return [
            entry
            for entry, lease in self._on(infra, host)
            if lease.state < LeaseState.RELEASING and not lease.lost and not entry.broken
        ]

    async def _until_taken_in(self, infra: InfraName, host: str) -> None:
        deadline = self._clock.now() + TAKEN_IN
        while self._live(infra, host) and self._clock.now() < deadline:
            await self._clock.sleep(STEP)

    async def _only(self, host: str, infra: InfraName) -> tuple[InfraName, Views]:
        """The one infra that has that host, and its hosts as it shows them."""
        names = [name for name in self._infras if infra in ("", name)]
        shown = dict(zip(names, await asyncio.gather(*map(self._views, names))))
        known = {name: self._named(name) | (views or {}).keys() for name, views in shown.items()}
        found = [name for name, hosts in known.items() if host in hosts]
        if len(found) == 1:
            return found[0], shown[found[0]] or {}
        if found:
            raise InputError(
                f"{' and '.join(found)} both have a host {host!r}",
                code="infra/ambiguous-host",
                hint=f"say which: `--infra {found[0]}`",
            )
        every = sorted({one for hosts in known.values() for one in hosts})
        hint = f"there is {', '.join(every[:NAMED])}" if every else "`argosy infra list` shows them"
        where = f"{infra} has" if infra else "there is"
        raise NotFound(f"{where} no host {host!r}", code="infra/unknown-host", hint=hint)

    def _named(self, name: InfraName) -> set[str]:
        """The hosts of an infra that records or words name."""
        found = {one.host for one in self._words.values() if one.infra == name}
        for entry in self._rim.entries.values():
            found |= {_host(one) for one in entry.group.leases if one.placement.infra == name}
        return found - {""}

    def _answers(self, name: InfraName, host: str, views: Views) -> bool:
        """Whether a host answers; where its infra does not say, whether its agent was heard."""
        if isinstance(self._infras[name], Checks):
            return host in views and views[host].state == UP
        link = self._rim.links.get((name, host))
        return link is not None and bool(link.heard_at) and not link.silent

    async def _views(self, name: InfraName) -> Views | None:
        """Each host, as the infra itself shows it; None: it fails to."""
        infra = self._infras[name]
        if not isinstance(infra, Checks):
            return {}
        try:
            async with asyncio.timeout(HOSTS_TIMEOUT):
                return {one.host: one for one in await infra.hosts()}
        except (ArgosyError, OSError) as error:  # TimeoutError too
            log.warning("hosts-unknown", extra={"infra": name, "why": str(error)})
            return None

    async def _keep(self, infra: InfraName, host: str, word: Word | None) -> None:
        """Write a word down, or strike it; only then that holds."""
        async with self._changing:
            words = {key: one for key, one in self._words.items() if key != (infra, host)}
            if word is not None:
                words[infra, host] = word
            texts = json.dumps([asdict(one) for one in words.values()]) if words else ""
            await self._store.keep(KEPT_AS, texts)
            self._words = words
            if words:
                self._there.set()
            else:
                self._there.clear()


def _word(fields: Mapping[str, Any]) -> Word:
    return Word(**{**fields, "leases": tuple(fields["leases"])})


def _host(lease: Lease) -> str:
    """Where it is, or where it was asked for."""
    return lease.host or lease.placement.host or ""


def _shows(lease: Lease, look: Look) -> bool:
    """Whether the record has something that the look should show, were the host seen."""
    counted = lease.state < LeaseState.RELEASING and not lease.lost
    return counted or look.blind_all or lease.id in look.blind
