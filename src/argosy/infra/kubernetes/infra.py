"""One Kubernetes context: the five verbs, and what can be asked of it beside them.

A lease is a pod; what is group-wide (a service, a secret, the anchor that owns both) stands for the
group's lease 0. What is there is known by watches (watch.py), never by polling. While the API
server is away nothing can be seen, and absence is no evidence. What an object says of itself is
read in seen.py and offers.py, and what is sent is made in compose.py, both without a cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from argosy.errors import ArgosyError, CapacityError, InfraError, Unreachable
from argosy.infra.api import Health, HostRef, HostView, Stream
from argosy.infra.kubernetes import marks
from argosy.infra.kubernetes.claims import Claims
from argosy.infra.kubernetes.cluster.client import Cluster, Json
from argosy.infra.kubernetes.cluster.failures import (
    ASK_FOR_RIGHTS,
    FORBIDDEN,
    NOT_ALLOWED,
    Refused,
    as_refusal,
)
from argosy.infra.kubernetes.cluster.objects import Objects
from argosy.infra.kubernetes.cluster.rights import missing, no_namespace, vital
from argosy.infra.kubernetes.cluster.sight import FIRST_LIST_SECONDS, Sight
from argosy.infra.kubernetes.config import ContextConfig
from argosy.infra.kubernetes.door import Door
from argosy.infra.kubernetes.early import Early
from argosy.infra.kubernetes.facts import offers
from argosy.infra.kubernetes.facts.cards import Card, cards_of_pod
from argosy.infra.kubernetes.facts.seen import may_answer_early, seen
from argosy.infra.kubernetes.kept import Kept, Reader
from argosy.infra.kubernetes.manifests import compose, export, scripts
from argosy.infra.kubernetes.pods import Pods
from argosy.infra.kubernetes.wide import Wide
from argosy.model.action import LeaseRequest
from argosy.model.ids import (
    GroupId,
    InfraName,
    LeaseId,
    ServerId,
    TaskName,
    group_lease,
    group_of,
)
from argosy.model.needs import Capacity, Need, fits
from argosy.model.observed import Look, SeenLease, SeenState
from argosy.model.plan import Offer
from argosy.model.volumes import Volume

LOG: Final = logging.getLogger("argosy.infra.kubernetes")
ATTACH_SECONDS: Final = 15.0
BUSY_SECONDS: Final = 10.0  # of these, that a busy server is asked again
DIAL_SECONDS: Final = 10.0  # that an attach waits for an agent which is to dial in
MAKE_NAMESPACE: Final = "`kubectl create namespace {}`, or name another one in config.yaml"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a context is opened with."""

    home: Path  # $ARGOSY_HOME
    server: ServerId
    now: Callable[[], float]
    agent: Callable[[], Mapping[str, bytes]]  # the agent's files; blocks
    reader: Reader  # of kept logs
    door: Door | None = None  # for agents that dial out; None: they are attached by exec


class Kubernetes:
    """One cluster, one namespace, as one user."""

    own_addresses = True  # every lease is a host of its own, with an address that all reach

    def __init__(
        self, config: ContextConfig, settings: Settings, *, wakes_on: frozenset[str] | None = None
    ) -> None:
        """`wakes_on`: nobody named it in config.yaml, so it is left alone until a file asks for an
        infra by one of these words; None: it is awake.
        """
        self.name: InfraName = f"kubernetes/{config.name}"
        self._config, self._settings = config, settings
        self._cluster = Cluster(self.name, config)
        self._change = asyncio.Event()
        own = marks.digest(self.name)
        owner = self._owner = marks.Owner(settings.server, own)
        self._sight = Sight(self._cluster, owner, self._change.set)
        self._objects = Objects(self._cluster, self._sight, owner)
        self._wide = Wide(self._objects, self._sight, owner, settings.agent)
        self._claims = Claims(self._cluster, self._objects, owner)
        folder = settings.home / "infra" / "kubernetes" / own
        self._kept = Kept(folder / "kept", settings.reader)
        self._kept.sweep()
        if settings.door is not None:
            settings.door.living.append(self._living)
        self._pods = Pods(
            self._cluster, self._sight, self._objects, self._kept, settings.door,
            lambda pod: self._early.answers(pod),
        )  # fmt: skip
        self._early = Early(self._pods.exec_once, self._sight, self._change.set)
        self._used = folder / "used"
        self._noted = False  # in this life, that something may be there
        self._wakes_on = wakes_on or frozenset()
        self._dormant = wakes_on is not None and not self._used.exists()

    # --- the five verbs --------------------------------------------------------------------------

    async def offers(self, need: Need) -> Sequence[Offer]:
        """Every node of the cluster, less what runs there; where that may not be seen, what the
        scheduler may know better.
        """
        if self._dormant and not self._named_by(need):
            return ()
        nodes, pods = await self._sight.nodes(), await self._sight.pods_of_all()
        trouble = next((one.trouble for one in (nodes, pods) if not one.current), None)
        if trouble is not None and trouble.code == NOT_ALLOWED:
            return (offers.unseen(self.name, need),)
        if trouble is not None:
            raise trouble
        return offers.offers(
            self.name, need, list(nodes.items.values()), list(pods.items.values()), self._config
        )

    async def acquire(self, request: LeaseRequest) -> None:
        """Ensure what is group-wide, and the pod. Raises CapacityError, AccessError, InfraError."""
        try:
            await self._wake()
            await self._refuse_what_never_fits(request.placement.need)
            uid = await self._wide.ensure(request)
            await self._let_in(request, uid)
            await self._pods.ensure(compose.pod(request, await self._pod_settings(request)))
        except Refused as error:
            raise self._cluster.translated(error, f"make the pod of {request.node}") from error
        except ArgosyError as error:
            raise as_refusal(error) from error
        finally:
            self._change.set()

    async def release(self, lease: LeaseId) -> None:
        """Ensure that nothing of it is left: returns when that was asked for."""
        if self._dormant:
            return
        await self._cluster.open()
        try:
            if lease == group_lease(group_of(lease)):
                await self._wide.release(group_of(lease))
            else:
                await self._pods.release(marks.pod_name(lease))
        except Refused as error:
            raise self._cluster.translated(error, f"end {lease}") from error

    async def sightings(self) -> Look:
        """Everything with our mark, as the watches show it."""
        began = self._settings.now()
        if self._dormant:
            return Look(self.name, began)
        await self._open_door()
        kinds = ("pods", "configmaps", "services")
        pods, anchors, services = await asyncio.gather(*map(self._sight.mine, kinds))
        ready = (pods.current, anchors.current, services.current)
        if pods.items:
            await self._sight.nodes()  # whether a node is ready decides what an end means
        self._greet(pods.items)
        leases = [self._seen(pod) for pod in pods.items.values()]
        for anchor in anchors.items.values():
            lease = marks.lease_of(anchor)
            if lease is not None:
                leases.append(SeenLease(lease, SeenState.UP))
        return Look(self.name, began, tuple(leases), blind_all=not all(ready))

    def _greet(self, pods: Mapping[str, Json]) -> None:
        """See which agents answer already. Agents that dial do so by themselves, and connections to
        a balanced task need the address that the cluster knows: both have time.
        """
        if self._settings.door is None:
            made = {name for name, pod in pods.items() if may_answer_early(pod)}
            balanced = self._wide.balanced_tasks() if made else ()
            waits = {name for name in made if marks.task_of(pods[name]) in balanced}
            self._early.look(made - waits, pods)

    def _seen(self, pod: Json) -> SeenLease:
        answers = self._early.answers(pod["metadata"]["name"])
        return seen(pod, node_ready=self._sight.node_ready(pod), answers=answers)

    async def _open_door(self) -> None:
        """Let agents dial in. Where that cannot be, they are attached by exec."""
        if self._settings.door is not None:
            try:
                await self._settings.door.open()
            except InfraError as error:
                LOG.warning("%s", error.text)

    async def attach(self, host: HostRef) -> Stream:
        """A stream to the agent in that pod; of one that is gone, to one that has its logs. Raises
        Unreachable.
        """
        if await asyncio.to_thread(self._kept.has, host.host):
            return await self._kept.attach(host.host)
        try:
            dialed = await self._pods.dialed(host.host, DIAL_SECONDS)
            if dialed is not None:
                return dialed
            if self._pods.may_dial_yet(host.host):
                raise self._no_agent(host, "it has not dialed in yet")
            async with asyncio.timeout(ATTACH_SECONDS):
                await self._cluster.open()
                early = await self._early.take(host.host)
                if early is not None:
                    return early
                stream = await self._pods.exec(host.host, scripts.ATTACH_COMMAND, BUSY_SECONDS)
                if not await stream.begins_with(scripts.ATTACHED):
                    raise self._no_agent(host, stream.said or "it ended at once")
                return stream
        except TimeoutError as error:
            raise self._no_agent(host, f"not within {ATTACH_SECONDS:g} s") from error
        except Refused as error:
            hint = ASK_FOR_RIGHTS if error.status == FORBIDDEN else ""
            raise self._no_agent(host, error.text or error.reason, hint) from error

    # --- what else it can do ---------------------------------------------------------------------

    def gpu_indices(self, lease: LeaseId) -> tuple[int, ...]:
        """The cards of a lease, as its pod numbers them: there are no others in it."""
        pods = (pod for pod in self._sight.known("pods") if marks.lease_of(pod) == lease)
        return tuple(range(sum(map(cards_of_pod, pods))))

    def balanced_addresses(self, group: GroupId) -> Mapping[TaskName, str]:
        """The addresses of the group's balanced tasks: those of their services."""
        return self._wide.balanced_addresses(group)

    async def balance(self, healthy: Mapping[LeaseId, bool]) -> None:
        """Put the label that the services select on the healthy ones, and on no other."""
        try:
            await self._pods.balance(healthy)
        except Refused as error:
            raise self._cluster.translated(error, "label pods") from error

    async def ensure_volume(self, volume: Volume) -> None:
        """Make its claim, or see that it is there; nothing in a context that is left alone and that
        nobody means. Raises InputError, NotFound, InfraError.
        """
        if self._dormant and volume.spec.infra not in self._wakes_on:
            return
        try:
            await self._wake()
            await self._claims.ensure(volume)
        except Refused as error:
            raise self._cluster.translated(error, f"make {volume.spec.name}") from error

    async def delete_volume(self, volume: Volume) -> None:
        """Delete its claim, if it was made for it. Raises Unreachable, InfraError."""
        if self._dormant:
            return
        await self._cluster.open()
        try:
            await self._claims.delete(volume)
        except Refused as error:
            raise self._cluster.translated(error, f"delete {volume.spec.name}") from error

    async def volumes(self) -> Sequence[str]:
        """The ids of all volumes that have a claim that was made for them."""
        if self._dormant:
            return ()
        await self._cluster.open()
        try:
            return await self._claims.every()
        except Refused as error:
            raise self._cluster.translated(error, "list claims") from error

    async def changed(self) -> None:
        """Returns after the next change that was heard of."""
        await self._change.wait()
        self._change.clear()

    async def manifests(self, requests: Sequence[LeaseRequest], *, whole: bool) -> str:
        """What it would make, as `kubectl apply` takes it."""
        agent = await asyncio.to_thread(self._settings.agent) if whole else {}
        cards = offers.seen_cards(self._sight.known("nodes"))
        settings = compose.PodSettings(self._owner, self._config, cards, dial=self._dial())
        return export.manifests(self.name, requests, settings, agent)

    async def hosts(self) -> Sequence[HostView]:
        """The nodes of the cluster, with what is free and which leases of ours are there."""
        return () if self._dormant else await self._hosts()

    async def _hosts(self) -> Sequence[HostView]:
        nodes, mine = await self._sight.nodes(), await self._sight.mine("pods")
        if not nodes.current:
            return ()
        found = await self.offers(Need(infra=self.name))
        holders: dict[str, list[LeaseId]] = {}
        for pod in mine.items.values():
            lease, node = marks.lease_of(pod), pod["spec"].get("nodeName", "")
            if lease is not None:
                holders.setdefault(node, []).append(lease)
        return tuple(
            HostView(
                one.host,
                one.total,
                one.free if one.count else Capacity(),
                "up" if one.count and not one.silent else "away",
                tuple(holders.get(one.host, ())),
            )
            for one in found
            if one.host is not None
        )

    async def check(self) -> Health:
        """Sign in and look at everything that is needed."""
        if self._dormant:
            asleep = f"not asked yet: `argosy infra check {self.name}` asks it"
            return Health(self.name, True, (("state", asleep),))
        return await self._check()

    async def named_check(self, name: str) -> tuple[Health, Sequence[HostView]]:
        """The check and the hosts, of a context that is left alone too: it stays so."""
        if self._dormant and name not in self._wakes_on:
            return await self.check(), ()
        return await self._check(), await self._hosts()

    async def _check(self) -> Health:
        await self._cluster.open()
        try:
            version = await self._cluster.get("/version")
            nowhere = await no_namespace(self._cluster)
            lacking = () if nowhere else await missing(self._cluster)
        except Refused as error:
            raise self._cluster.translated(error, "say its version and our rights") from error
        nodes, mine = await self._sight.nodes(), await self._sight.mine("pods")
        await mine.ready(FIRST_LIST_SECONDS)
        troubles = [one.trouble for one in (mine, nodes) if one.trouble is not None]
        hints = [hint for one in troubles for hint in one.hints]
        texts = [one.text for one in troubles] + [f"we may not {right}" for right in lacking]
        hints += [ASK_FOR_RIGHTS] if lacking else []
        if nowhere:
            texts.insert(0, f"there is no namespace {self._cluster.namespace!r}")
            hints.insert(0, MAKE_NAMESPACE.format(self._cluster.namespace))
        dial = self._settings.door is not None
        works = mine.current and not nowhere and not any(vital(one, dial=dial) for one in lacking)
        facts = (
            ("version", str(version.get("gitVersion", "?"))),
            ("namespace", self._cluster.namespace),
            ("image", self._config.image),
            ("nodes", str(len(nodes.items)) if nodes.current else "not to be seen"),
            ("network", "isolated: every node has its pod's"),
            ("agents", self._how_attached()),
        )
        return Health(self.name, works, facts, tuple(texts), tuple(dict.fromkeys(hints)))

    def _how_attached(self) -> str:
        by_exec = f"{self._cluster.execs} streams of exec so far"
        door = self._settings.door
        return f"dial {door.address}; {by_exec}" if door is not None else f"by exec; {by_exec}"

    async def close(self) -> None:
        """Let go of everything; what runs goes on."""
        await self._early.close()
        await self._sight.close()
        if self._settings.door is not None:
            await self._settings.door.close()
        await self._cluster.close()

    # --- acquiring -------------------------------------------------------------------------------

    def _named_by(self, need: Need) -> bool:
        return need.infra is not None and need.infra in self._wakes_on

    async def _wake(self) -> None:
        """From now on it is looked at, by every later life too."""
        if not self._noted:
            await asyncio.to_thread(_touch, self._used)
            self._noted, self._dormant = True, False
        await self._cluster.open()

    async def _refuse_what_never_fits(self, need: Need) -> None:
        """Raises CapacityError where no node could hold it if it were empty, and none is made."""
        nodes = await self._sight.nodes()
        if self._config.autoscaling or not nodes.current:
            return
        empty = offers.offers(self.name, need, list(nodes.items.values()), (), self._config)
        disk = f" and {need.disk_gib:g} GiB of disk" if need.disk_gib else ""
        if not any(fits(need, one.total) for one in empty):
            raise CapacityError(
                f"no node of {self.name} is large enough for {need.describe()}{disk}",
                code="kubernetes/too-large",
                hint=f"`argosy infra check {self.name}` shows its nodes",
            )

    async def _let_in(self, request: LeaseRequest, anchor_uid: str) -> None:
        """Give the agent of that lease what it needs to dial in, if agents are to."""
        door = self._settings.door
        if door is not None:
            certificate = await door.open()
            token = door.token(request.lease)
            body = compose.dial_secret(request, self._owner, anchor_uid, certificate, token)
            await self._objects.ensure("secrets", body)

    def _living(self, lease: LeaseId) -> bool:
        """Whether a lease is there: its agent may dial in."""
        for pod in self._sight.known("pods"):
            if marks.lease_of(pod) == lease:
                return self._seen(pod).state is not SeenState.GONE
        return False

    async def _pod_settings(self, request: LeaseRequest) -> compose.PodSettings:
        cards: tuple[Card, ...] = ()
        if request.placement.accelerator is not None:
            cards = offers.seen_cards((await self._sight.nodes()).items.values())
        known = self.balanced_addresses(request.group)
        balanced = tuple((one.name, known[one.task]) for one in request.balanced)
        return compose.PodSettings(self._owner, self._config, cards, balanced, self._dial())

    def _dial(self) -> str:
        """Where agents reach us; "": they are attached by exec."""
        return self._settings.door.address if self._settings.door is not None else ""

    # --- attaching -------------------------------------------------------------------------------

    def _no_agent(self, host: HostRef, why: str, hint: str = "") -> Unreachable:
        logs = f"`kubectl -n {self._cluster.namespace} logs {host.host}` shows what it says"
        return Unreachable(
            f"the agent in pod {host.host} cannot be attached: {why}",
            code="kubernetes/no-agent",
            hint=hint or logs,
            retry=1.0,
        )


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch()
