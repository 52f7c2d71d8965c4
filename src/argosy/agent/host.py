"""The agent's memory of what it was told and what became of it: leases, groups, attempts, reports.

Assignments and serials are per lease. Silence about a lease changes nothing; only an assignment
that does not list an attempt, or a release, ends it. A lease that was released is never taken
again.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import facts
from .attempt import files, volumes
from .attempt.attempts import Attempt
from .attempt.leaving import Leaving
from .attempt.request import write_peers
from .decide import Stage
from .gpus import CardUsage
from .groups import Group
from .loop import Timer
from .naming import safe_name
from .place import Place

RELEASED_MAX, EVENTS_MAX = 2000, 200
REVIVE_EVERY, USAGE_EVERY, CAP_AFTER = 5.0, 10.0, 1.0
ACK_AFTER = 0.02
"""Nobody waits for "taken" and "preparing": they are told so much later, with what follows."""
PEERS_EACH, PEERS_MOST = 0.01, 1.0
"""Seconds from a new address book to the peers files that say so: for each file, and at most. While
the nodes of a large group start, there is a new book many times a second.
"""
LOGS_MAX_BYTES = 20 << 30
"""What the logs of ended attempts may take together; then the oldest go."""

KEPT = (
    "nodes on another host cannot reach those that run here, whose network is this host's alone: "
    "a restart of the group mends it"
)

Message = Dict[str, Any]


class Host:
    """All leases of one agent. `send` gives a message to every control stream; whether there was
    one.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.attempts: Dict[str, Attempt] = {}
        self._by_lease: Dict[str, List[Attempt]] = {}
        self.groups: Dict[str, Group] = {}
        self.send: Callable[[Message], bool] = lambda message: False
        self.on_empty: Callable[[], None] = lambda: None
        """Called when the last lease is gone."""
        self._gone_calls: Dict[str, List[Callable[[], None]]] = {}
        self._changed: Set[str] = set()
        self._full = self._capping = self._telling = False
        self._reporting: Optional[Timer] = None
        self._events: List[Message] = []
        self._ticking = False
        self._usage_at = 0.0
        self._cards = CardUsage(place.loop, place.gpus_on_host > 0)
        self.leaving = Leaving(place.loop, self.attempts)

    # -- what was there before ------------------------------------------------------------------

    def adopt(self) -> None:
        """Take over everything that an earlier life of the agent has written down."""
        journal = self.place.journal
        for lease in list(journal.of("lease").values()):
            group = self._group(lease["group"])
            book = journal.get("book", str(lease["group"]["id"]))
            if book:
                group.take_book(book)
            group.adopt()
        for name, record in list(journal.of("attempt").items()):
            if record.get("gone") or record["lease"] not in journal.of("lease"):
                continue
            lease = journal.of("lease")[record["lease"]]
            task = journal.get("task", name) or {}
            self._add(record, task, self._group(lease["group"])).adopt()
        self._leave_forgotten_groups()
        files.empty_trash(self.place.loop, self.place.home)
        for attempt in list(self.attempts.values()):
            attempt.advance()
        for name in list(journal.of("lease")):
            self._settle(name)
        self._tick()

    def _leave_forgotten_groups(self) -> None:
        """A life that was killed just after the last lease of a group may not have left it."""
        place, used = self.place, {group.folder for group in self.groups.values()}
        groups = os.path.join(place.shared, "groups")
        for name in os.listdir(groups) if os.path.isdir(groups) else []:
            users = os.path.join(groups, name, "users", safe_name(place.home))
            if os.path.join(groups, name) not in used and os.path.exists(users):
                Group(place.loop, place.shared, place.home, {"id": name}).leave()

    # -- what the server says -------------------------------------------------------------------

    def assign(self, message: Message) -> None:
        """Take an assignment, unless a newer one was taken or the lease was released."""
        name, serial = str(message["lease"]), _serial(message["serial"])
        journal = self.place.journal
        known = journal.get("lease", name)
        if journal.get("released", name) is not None or (known and known.get("released")):
            self._changed_lease(name)
            return
        if known is not None:
            older = int(message["group"]["incarnation"]) < int(known["group"]["incarnation"])
            if serial < _serial(known["serial"]) or older:
                return
            if serial == _serial(known["serial"]):
                self._take_book(message)
                self._changed_lease(name, ACK_AFTER)
                return
        # The serial is written last: an agent that is killed in between has not taken it, is sent
        # the assignment again, and takes what is missing.
        if known is None:
            journal.put("lease", name, {"serial": [0, 0], "group": message["group"]})
        group = self._group(message["group"])
        cut_off, group.facts = group.cut_off, message["group"]
        if group.cut_off and not cut_off:
            self._event(name, "", "network-kept", KEPT)
        self._take_book(message)
        for order in message["orders"]:
            self._order(name, order, message["tasks"], group)
        listed = {str(order["attempt"]) for order in message["orders"]}
        for attempt in self._of_lease(name):
            if attempt.id not in listed:
                self._drop(attempt)
        journal.put("lease", name, {"serial": list(serial), "group": message["group"]})
        self._changed_lease(name, ACK_AFTER)
        self._tick()

    def _order(self, lease: str, order: Message, tasks: Message, group: Group) -> None:
        """One attempt's order; its goal never shrinks, and what has ended stays ended."""
        name = str(order["attempt"])
        attempt = self.attempts.get(name)
        if attempt is None:
            if self.place.journal.get("attempt", name) is not None:
                return  # it was here, has ended, and nobody listed it any more
            task = tasks[order["task"]]
            record = {
                "order": order, "lease": lease, "group": group.facts["id"], "boot": self.place.boot,
                "stage": 0, "at": time.time(),
            }  # fmt: skip
            self.place.journal.put("task", name, task)
            attempt = self._add(record, task, group)
            attempt.save()
            self.leaving.joined(attempt)
        else:
            goal = max(int(order["goal"]), int(attempt.record["order"]["goal"]))
            merged = dict(order, goal=goal)
            if merged != attempt.record["order"]:
                attempt.record["order"] = merged
                attempt.save()
        self.place.loop.soon(attempt.advance)

    def _drop(self, attempt: Attempt) -> None:
        """No assignment lists it any more: it ends, and is forgotten once that was reported."""
        if not attempt.record.get("dropped"):
            attempt.record["dropped"] = True
            attempt.save()
        self.place.loop.soon(attempt.advance)

    def release(self, lease: str) -> None:
        """End everything of a lease, then forget it; unknown is remembered, so that it never
        starts.
        """
        journal = self.place.journal
        known = journal.get("lease", lease)
        if known is None:
            self._bury(lease)
            return
        journal.put("lease", lease, dict(known, released=True))
        for attempt in self._of_lease(lease):
            self._drop(attempt)
        self._settle(lease)

    def when_gone(self, lease: str, call: Callable[[], None]) -> None:
        """Call once, as soon as nothing of the lease is left."""
        if self.place.journal.get("lease", lease) is None:
            call()
        else:
            self._gone_calls.setdefault(lease, []).append(call)

    def forget(self, group: str, done: Callable[[], None]) -> None:
        """Remove the logs and working directories of a group's ended attempts; then call `done`."""
        paths: List[str] = []
        self.place.journal.learn()
        for name, record in list(self.place.journal.of("attempt").items()):
            if record["group"] == group and record.get("gone"):
                paths += self._strike(name, record)
        if group not in self.groups:
            paths += volumes.forgotten(self.place.shared, group)
        files.discard(self.place.loop, self.place.home, paths, done)

    def _strike(self, name: str, record: Message) -> List[str]:
        """Know nothing more of an attempt that is gone; the folders to be removed."""
        journal, paths = self.place.journal, [self._folder(name)]
        work = record.get("work")
        users = [a.record.get("work") for a in self.attempts.values()]
        if work and work not in users:
            paths.append(work)
            journal.put("setup", os.path.basename(work), None)
        journal.put("attempt", name, None)
        return paths

    def _folder(self, attempt: str) -> str:
        return os.path.join(self.place.home, "attempts", safe_name(attempt))

    # -- groups and leases ----------------------------------------------------------------------

    def _group(self, given: Message) -> Group:
        name = str(given["id"])
        if name not in self.groups:
            place = self.place
            group = self.groups[name] = Group(place.loop, place.shared, place.home, given)
            group.users = lambda: [
                one.goal is Stage.ENDED
                for one in self.attempts.values()
                if one.group is group and one.stage is not Stage.ENDED and "spec" in one.record
            ]
        return self.groups[name]

    def _take_book(self, message: Message) -> None:
        group = self._group(message["group"])
        book = message.get("book")
        if not book or not group.take_book(book):
            return
        name = str(message["group"]["id"])
        self.place.journal.put("book", name, book)
        self._update_proxy(group)
        self._quietly(group.update_names)
        if not self._telling:  # while nodes start, books come one after the other
            self._telling = True
            later = min(PEERS_MOST, PEERS_EACH * len(self.attempts))
            self.place.loop.after(later, self._tell_peers)

    def _tell_peers(self) -> None:
        """Write the peers files anew that are out of date; who has none gets it at the start."""
        self._telling = False
        for attempt in self.attempts.values():
            began = attempt.setup is not None or attempt.run is not None
            if began and attempt.stage is not Stage.ENDED:
                self._quietly(lambda attempt=attempt: write_peers(attempt))  # type: ignore[misc]

    def _quietly(self, action: Callable[[], None]) -> None:
        """For files that are written again with the next news: a full disk is told, not fatal."""
        try:
            action()
        except OSError as error:
            self._event("", "", "write-failed", "%s: %s" % (error.filename, error.strerror))

    def _update_proxy(self, group: Group) -> None:
        if not group.book["balanced"]:
            return
        healthy = {a.id: a.healthy for a in self.attempts.values() if a.group is group}
        self._quietly(lambda: group.update_proxy(healthy))

    def _add(self, record: Message, task: Message, group: Group) -> Attempt:
        attempt = Attempt(self.place, record, task, group)
        attempt.on_change = lambda: self._attempt_changed(attempt)
        attempt.on_event = lambda code, text: self._event(
            str(record["lease"]), attempt.id, code, text
        )
        self.attempts[attempt.id] = attempt
        self._by_lease.setdefault(str(record["lease"]), []).append(attempt)
        return attempt

    def _of_lease(self, lease: str) -> List[Attempt]:
        return list(self._by_lease.get(lease, ()))

    def _attempt_changed(self, attempt: Attempt) -> None:
        later = ACK_AFTER if attempt.stage is Stage.PREPARING else 0.0
        self._changed_lease(str(attempt.record["lease"]), later)
        self._update_proxy(attempt.group)
        if attempt.stage is Stage.ENDED and attempt.record.get("dropped"):
            self._settle(str(attempt.record["lease"]))
        self.leaving.look()

    def _settle(self, lease: str) -> None:
        """Forget a released lease when all of it has ended."""
        known = self.place.journal.get("lease", lease)
        attempts = self._of_lease(lease)
        if not known or not known.get("released"):
            return
        if any(attempt.stage is not Stage.ENDED for attempt in attempts):
            return
        for attempt in attempts:
            self._lay_down(attempt)
        self._bury(lease)
        self.place.journal.put("lease", lease, None)
        self._leave_group(str(known["group"]["id"]))
        self._full = True
        self._report_within(ACK_AFTER)
        for call in self._gone_calls.pop(lease, []):
            call()
        if not self.place.journal.of("lease"):
            self.on_empty()

    def _bury(self, lease: str) -> None:
        journal = self.place.journal
        journal.put("released", lease, {"at": time.time()})
        released = list(journal.of("released"))
        for old in released[: max(0, len(released) - RELEASED_MAX)]:
            journal.put("released", old, None)

    def _leave_group(self, name: str) -> None:
        if any(lease["group"]["id"] == name for lease in self.place.journal.of("lease").values()):
            return
        group = self.groups.pop(name, None)
        self.place.drop_prober(name)
        self.place.journal.put("book", name, None)
        self.place.journal.compact()  # the secrets of its tasks leave the disk
        if group is not None:
            group.leave(lambda: name in self.groups)

    def _lay_down(self, attempt: Attempt) -> None:
        """An ended attempt that nobody needs: only its log stays, and who it was."""
        attempt.record["gone"] = True
        attempt.save()
        attempt.close()
        self.place.journal.put("task", attempt.id, None)
        if self.attempts.pop(attempt.id, None) is not None:
            mates = self._by_lease[str(attempt.record["lease"])]
            mates.remove(attempt)
            if not mates:
                del self._by_lease[str(attempt.record["lease"])]
        if not self._capping:  # once for all that end together: it looks at every log there is
            self._capping = True
            self.place.loop.after(CAP_AFTER, self._cap_logs)

    def _cap_logs(self) -> None:
        """Free the logs of the oldest ended attempts when all together take too much."""
        self._capping = False
        gone = [(n, r) for n, r in self.place.journal.of("attempt").items() if r.get("gone")]
        sizes = {name: _disk_bytes(os.path.join(self._folder(name), "output")) for name, _ in gone}
        total = sum(sizes.values())
        paths: List[str] = []
        for name, record in sorted(gone, key=lambda pair: float(pair[1]["at"])):
            if total <= LOGS_MAX_BYTES:
                break
            total -= sizes[name]
            paths += self._strike(name, record)
        files.discard(self.place.loop, self.place.home, paths, lambda: None)

    # -- what the server hears ------------------------------------------------------------------

    def lease_report(self, lease: str) -> Optional[Message]:
        """The report of one lease, None when it is not known."""
        known = self.place.journal.get("lease", lease)
        if known is None:
            return None
        return {
            "serial": known["serial"],
            "attempts": [attempt.seen() for attempt in self._of_lease(lease)],
        }

    def full_report(self) -> Message:
        """Everything there is."""
        leases = {name: self.lease_report(name) for name in self.place.journal.of("lease")}
        return dict(self._report(leases), full=True)

    def _report(self, leases: Message) -> Message:
        return {"type": "report", "at": time.time(), "boot_id": self.place.boot, "leases": leases}

    def welcome(self) -> List[Message]:
        """What a new control stream hears after the hello: all, and events nobody heard."""
        events, self._events = self._events, []
        return [self.full_report(), *events]

    def _changed_lease(self, lease: str, within: float = 0.0) -> None:
        self._changed.add(lease)
        self._report_within(within)

    def _report_within(self, seconds: float) -> None:
        """Tell all that has changed in one report, so many seconds from now at the latest."""
        when = self.place.loop.now() + seconds if seconds else 0.0
        if self._reporting is not None and self._reporting.when <= when:
            return
        if self._reporting is not None:
            self._reporting.cancel()
        self._reporting = self.place.loop.at(when, self.send_reports)

    def send_reports(self) -> None:
        """Tell what has changed; an attempt that was dropped is forgotten once its end was told."""
        self._reporting = None
        changed, self._changed = self._changed, set()
        reports = {name: self.lease_report(name) for name in changed}
        found = {name: report for name, report in reports.items() if report is not None}
        full, self._full = self._full, False
        if full:
            heard = self.send(self.full_report())
        elif found:
            heard = self.send(self._report(found))
        else:
            return
        if heard:
            for name in found:
                self.told(name)

    def told(self, lease: str) -> None:
        """A control stream heard of the lease."""
        for attempt in self._of_lease(lease):
            if attempt.stage is Stage.ENDED and attempt.record.get("dropped"):
                self._lay_down(attempt)

    def _event(self, lease: str, attempt: str, code: str, text: str) -> None:
        message = {
            "type": "event", "at": time.time(), "lease": lease, "attempt": attempt,
            "code": code, "text": text,
        }  # fmt: skip
        if not self.send(message):
            self._events = [*self._events[-EVENTS_MAX + 1 :], message]

    # -- what ticks while something is held -----------------------------------------------------

    def _tick(self) -> None:
        """Every few seconds while there are leases: networks revived, usage told, the journal
        flushed.
        """
        if self._ticking or not self.place.journal.of("lease"):
            return
        self._ticking = True
        self.place.loop.after(REVIVE_EVERY, self._ticked)

    def _ticked(self) -> None:
        self._ticking = False
        for group in self.groups.values():
            group.revive()
        self.place.journal.flush()
        now = self.place.loop.now()
        if now - self._usage_at >= USAGE_EVERY - 0.1:
            self._usage_at = now
            used = self.usage()
            if used:
                self.send({"type": "usage", "at": time.time(), "attempts": used})
        self._tick()

    def usage(self) -> Message:
        """CPU seconds and memory of every attempt that runs, and what its cards do."""
        used = {}
        for attempt in self.attempts.values():
            pids = attempt.processes()
            if pids:
                cpu, rss = facts.usage(pids)
                gpu = self._cards.of(attempt.order.get("gpu_indices") or [])
                used[attempt.id] = {"cpu_s": round(cpu, 2), "rss_bytes": rss, "gpu": gpu}
        return used

    def history(self, group: str) -> List[Message]:
        """Ended attempts of a group ("": of all) whose logs are still here."""
        found = []
        self.place.journal.learn()
        for name, record in self.place.journal.of("attempt").items():
            if group in ("", record["group"]) and record["stage"] == int(Stage.ENDED):
                order = record["order"]
                entry = {
                    "attempt": name, "group": record["group"], "lease": record["lease"],
                    "node": order["node"], "task": order["task"], "number": order["number"],
                    "incarnation": order["incarnation"], "outcome": record.get("outcome"),
                    "exit_code": record.get("exit_code"), "signal": record.get("signal"),
                    "cause": record.get("cause", ""), "at": record["at"],
                    "log_bytes": _disk_bytes(os.path.join(self._folder(name), "output")),
                }  # fmt: skip
                found.append(entry)
        return found

    def log_of(self, name: str) -> Tuple[str, Optional[Attempt]]:
        """(path of an attempt's log, the attempt if it is still held). Raises LookupError."""
        attempt = self.attempts.get(name)
        path = os.path.join(self._folder(name), "output")
        if attempt is None and not os.path.exists(path):
            raise LookupError("no log of %s is here" % name)
        return path, attempt

    def close(self) -> None:
        """Free what this life holds; everything goes on."""
        for attempt in self.attempts.values():
            attempt.close()
        self._cards.close()
        for name in list(self.place.probers):
            self.place.drop_prober(name)


def _serial(value: List[int]) -> Tuple[int, int]:
    return int(value[0]), int(value[1])


def _disk_bytes(path: str) -> int:
    try:
        return os.stat(path).st_blocks * 512
    except OSError:
        return 0
