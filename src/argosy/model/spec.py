"""What the user submitted, complete: every default is filled in, every rule was checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from argosy.model.ids import NodeId, TaskName, dns_label
from argosy.model.needs import Need
from argosy.model.volumes import VolumeKind, VolumeSpec, VolumeUse


class Execution(StrEnum):
    """How the tasks of a group run: all at once, or one after the success of another."""

    PARALLEL = "parallel"
    SERIAL = "serial"


class Condition(StrEnum):
    """What a dependant waits for."""

    STARTED = "started"
    HEALTHY = "healthy"
    SUCCEEDED = "succeeded"


class Scope(StrEnum):
    """What a restart replaces."""

    NODE = "node"
    TASK = "task"
    GROUP = "group"


class OnFailure(StrEnum):
    """What a failed primary does to the other primaries."""

    WAIT = "wait"
    STOP = "stop"


class EndsWith(StrEnum):
    """When a task of several nodes is over: when all are, or when its head is."""

    ALL = "all"
    HEAD = "head"


@dataclass(frozen=True, slots=True)
class Restart:
    """When and how often a failed node is replaced."""

    on_failure: bool = False  # any exit that is not 0
    on_codes: tuple[int, ...] = ()  # these exit codes
    on_lost: bool = True
    max: int | None = None  # restarts for failures, per unit of the scope; None: without limit
    backoff_first: float = 1.0  # seconds; doubles up to backoff_most
    backoff_most: float = 300.0
    scope: Scope = Scope.NODE
    along: tuple[TaskName, ...] = ()  # tasks restarted along (`with` in the file)


class Probe(StrEnum):
    """How readiness is found out."""

    HTTP = "http"
    TCP = "tcp"
    COMMAND = "command"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Ready:
    """A readiness probe; times in seconds."""

    kind: Probe
    port: int = 0  # http and tcp
    path: str = "/"  # http
    text: str = ""  # command line, or regular expression for log
    interval: float = 1.0
    timeout: float = 2.0
    failures: int = 3  # so many failures in a row make it unready
    start_period: float = 0.0  # failures do not count before this


@dataclass(frozen=True, slots=True)
class Workdir:
    """Where the code comes from: a local folder, or a git repository."""

    path: str = ""  # absolute, on the submitter's machine
    url: str = ""
    ref: str = ""


@dataclass(frozen=True, slots=True)
class FileMount:
    """One thing that is there before `setup`: a local path, an https file, or a bucket."""

    destination: str
    source: str = ""  # absolute local path, or URI
    name: str = ""  # of the bucket; of what a snapshot was taken of
    store: str = ""
    mode: str = ""  # MOUNT, COPY, MOUNT_CACHED; "" for plain paths
    persistent: bool = True


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A volume at a path, as the file has it.

    With a name alone it was made before; with a size it lives as long as the group, and a name then
    lets tasks share it; with `host_path` it is a folder of the host.
    """

    destination: str
    name: str = ""
    sub_path: str = ""
    host_path: str = ""
    size_gib: float = 0.0
    kind: str = ""
    read_only: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    storage_class: str = ""
    access_mode: str = ""
    volume: VolumeSpec | None = None  # the one of that name, put in when the group is submitted
    id: str = ""  # and its id

    @property
    def ephemeral(self) -> bool:
        """Whether it lives as long as the group."""
        return not self.host_path and bool(self.size_gib or not self.name)

    @property
    def spec(self) -> VolumeSpec:
        """What is mounted, complete for one of a name once that was put in."""
        if self.volume is not None:
            return self.volume
        kind = self.kind or (VolumeKind.HOSTPATH if self.host_path else VolumeKind.ANY)
        return VolumeSpec(
            self.name, VolumeKind(kind), size_gib=self.size_gib, labels=self.labels,
            storage_class=self.storage_class, access_mode=self.access_mode,
            host_path=self.host_path,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One kind of member of a group."""

    name: TaskName
    num_nodes: int = 1
    needs: tuple[Need, ...] = (Need(),)  # alternatives; the first is the best when ordered
    needs_ordered: bool = False
    envs: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # shown nowhere
    workdir: Workdir | None = None
    file_mounts: tuple[FileMount, ...] = ()
    volumes: tuple[VolumeMount, ...] = ()
    setup: str = ""
    run: str = ""
    depends_on: tuple[tuple[TaskName, Condition], ...] = ()
    ready: Ready | None = None
    restart: Restart = Restart()
    balance: tuple[int, ...] = ()
    grace: float = 30.0  # seconds from SIGTERM to SIGKILL
    termination_delay: float = 0.0  # seconds that an auxiliary gets after the primaries' success
    ends_with: EndsWith = EndsWith.ALL
    strict: bool = False
    launcher: str = ""  # "torchrun" sets MASTER_ADDR and friends
    primary: bool = True
    not_carried_out: tuple[str, ...] = ()  # sentences for `plan`: parsed and checked, no more

    def nodes(self) -> tuple[NodeId, ...]:
        """The places of this task, in rank order."""
        return tuple(NodeId(self.name, index) for index in range(self.num_nodes))

    def volume_uses(self) -> tuple[VolumeUse, ...]:
        """What each of its nodes mounts, in the order of the file. A name that was never looked up,
        in a group of an earlier version, is nothing.
        """
        return tuple(
            VolumeUse(
                one.destination,
                one.id or _ephemeral_id(one, self.name, number),
                one.spec,
                one.ephemeral,
                one.sub_path,
                one.read_only,
            )
            for number, one in enumerate(self.volumes)
            if one.id or one.ephemeral or one.host_path
        )


def _ephemeral_id(mount: VolumeMount, task: TaskName, number: int) -> str:
    """What a volume without a record is called within its group; tasks share one of a name."""
    return f"name-{mount.name}" if mount.name else f"task-{dns_label(task)}-{number}"


def _bytes(use: VolumeUse) -> tuple[str, str]:
    """The same for two uses of one folder."""
    return use.spec.host_path or use.id, use.sub_path


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """What a user submits: tasks that live and die together."""

    name: str  # the DNS form
    tasks: tuple[TaskSpec, ...]
    execution: Execution = Execution.PARALLEL
    inter_connection: bool | None = None  # None: names wherever possible
    start_timeout: float = 900.0
    hold_timeout: float = 30.0
    priority: int = 0
    max_duration: float | None = None  # None: no limit
    on_failure: OnFailure = OnFailure.WAIT
    restarts: int = 0
    user: str = ""  # who submitted it
    network: str = ""  # "isolated", "host" or "": what works

    def task(self, name: TaskName) -> TaskSpec:
        """The task of that name; KeyError when there is none."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise KeyError(name)

    def nodes(self) -> tuple[NodeId, ...]:
        """Every place of the group, task by task."""
        return tuple(node for task in self.tasks for node in task.nodes())

    def kept_volumes(self) -> frozenset[str]:
        """The ids of the volumes that it mounts and that outlive it."""
        return frozenset(one.id for task in self.tasks for one in task.volumes if one.id)

    def shared_volume(self) -> dict[TaskName, VolumeUse]:
        """Of each task the volume that every task mounts, may write, and sees with the same bytes
        wherever it runs: what the group shares lies there. {} when there is none.
        """
        uses = [{_bytes(one): one for one in task.volume_uses() if one.everywhere}
                for task in self.tasks]  # fmt: skip
        everywhere = [key for key in (uses[0] if uses else {}) if all(key in one for one in uses)]
        if not everywhere:
            return {}
        return {task.name: one[everywhere[0]] for task, one in zip(self.tasks, uses, strict=True)}

    def host_name(self, node: NodeId) -> str:
        """`trainer-1.my-group`."""
        return f"{node}.{self.name}"

    def balanced_name(self, task: TaskName) -> str:
        """`rollout.my-group`."""
        return f"{dns_label(task)}.{self.name}"
