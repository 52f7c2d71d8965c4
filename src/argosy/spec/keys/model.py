"""The file model: every key of a header and of a task document, its shape, and what it is for.

`parse` reads documents with it, `schema` makes the JSON Schema of it, and the reference page is
made of that; a key that is not here does not exist.
"""

from __future__ import annotations

from typing import Final

from argosy.model.volumes import VOLUME_NAME, VolumeKind
from argosy.spec.keys import durations, resources
from argosy.spec.keys.shapes import (
    Anything,
    ByForm,
    Choice,
    Duration,
    Flag,
    Key,
    ListOf,
    MapOf,
    Number,
    Read,
    Record,
    Text,
    Whole,
    null_character,
    wrong,
)
from argosy.spec.keys.skypilot import teller
from argosy.spec.source.file import Items, Map, Node, Scalar, absent
from argosy.spec.source.notes import Notes

MAX_TASKS: Final = 1_000
MAX_NODES: Final = 10_000  # of one group
MAX_NAME: Final = 53  # of a DNS form: leaves room for `-12345` in a label of 63
SCALARS: Final = {"type": ["string", "number", "boolean", "null"]}


def _read_value(node: Node, about: str, notes: Notes) -> tuple[str | None] | None:
    """The value of a variable as text, in a tuple; null inside means that it must be given."""
    if not isinstance(node, Scalar):
        name = about.rpartition(".")[2]
        wrong(node, about, "text", f"put the value in quotes: `{name}: '...'`", notes)
        return None
    if node.native is None:
        return (None,)
    if "\0" in node.text:
        null_character(node.mark, about, notes)
        return None
    if isinstance(node.native, bool) and node.text.lower() not in ("true", "false"):
        notes.warn(
            node.mark,
            "boolean-text",
            f"YAML reads `{node.text}` as {node.native}, so `{about}` is `{node.native}`",
            f'write "{node.text}" in quotes if you mean the word',
        )
    return (node.text if isinstance(node.native, str) else str(node.native),)


def _read_exit_codes(node: Node, about: str, notes: Notes) -> tuple[int, ...] | None:
    read = ListOf(Whole(0, 255), or_one=True).read(node, about, notes)
    return None if read is None else tuple(read)


def _read_backoff(node: Node, about: str, notes: Notes) -> tuple[float, float] | None:
    """`2s` or `1s..5m`, as first and longest pause in seconds."""
    text = node.text if isinstance(node, Scalar) and node.native is not None else ""
    first, dots, most = text.partition("..")
    low = durations.seconds(first)
    high = durations.seconds(most) if dots else max(low or 0, 300)
    if low is None or high is None or low > high:
        hint = "write `backoff: 2s`, or from first to longest: `backoff: 1s..5m`"
        wrong(node, about, "a duration, or two of them", hint, notes)
        return None
    return float(low), float(high)


def _read_depends(node: Node, about: str, notes: Notes) -> tuple[tuple[Scalar, str], ...] | None:
    """Pairs of a task's name, as written, and a condition; "" where none was written."""
    conditions = Choice(("started", "healthy", "succeeded"))
    if isinstance(node, Map):
        read = [(key, conditions.read(value, about, notes)) for key, value in node.pairs]
        return tuple((key, word) for key, word in read if word is not None)
    nodes = node.items if isinstance(node, Items) else [node]
    names = [one for one in nodes if isinstance(one, Scalar) and one.native is not None]
    if len(names) != len(nodes):
        hint = "write `depends_on: [task]`, or `{task: healthy}`"
        wrong(node, about, "a list of tasks, or a map of task to condition", hint, notes)
        return None
    return tuple((name, "") for name in names)


def _read_pool(node: Node, about: str, notes: Notes) -> None:
    notes.error(
        node.mark,
        "pool",
        "`pool` is not supported in a group",
        "leave `pool` out; `num_nodes` and `balance` give a task several workers",
    )


def _read_regions(node: Node, about: str, notes: Notes) -> str | None:
    if isinstance(node, Items):
        some = [item.text for item in node.items if isinstance(item, Scalar)][:3]
        choices = ", ".join(f"{{infra: CLOUD/{region}}}" for region in some)
        notes.error(
            node.mark, "wrong-value", f"`{about}` is one name, not a list",
            f"write `any_of: [{choices}]`",
        )  # fmt: skip
        return None
    return Text("one name", "write one name", empty=False, variables=False).read(node, about, notes)


def _read_secrets(
    node: Node, about: str, notes: Notes
) -> tuple[tuple[Scalar, tuple[str | None]], ...] | None:
    """Pairs of name and value; a list, or a null, takes the value from the submitter."""
    if isinstance(node, Items):
        scalars = [item for item in node.items if isinstance(item, Scalar) and not absent(item)]
        if len(scalars) == len(node.items):
            return tuple((item, (None,)) for item in scalars)
    return MapOf(VALUE, "a map of name to value, or a list of names").read(node, about, notes)


VALUE: Final = Read(_read_value, {**SCALARS})
NAME: Final = Text("a name", "use letters, digits, `-` and `_`", empty=False, variables=False)
WORD: Final = Text("text", "write text", empty=False, variables=False)
PLAIN: Final = Text("text", "write text", empty=False)
ENVS: Final = MapOf(VALUE, "a map of name to value", "write one `NAME: value` a line, indented")
SECRETS: Final = Read(
    _read_secrets,
    {
        "anyOf": [
            {"type": "object", "additionalProperties": SCALARS},
            {"type": "array", "items": {"type": "string"}},
        ]
    },
)
PORT: Final = Whole(1, resources.MAX_PORT)
EXIT_CODES: Final = Read(
    _read_exit_codes,
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
)
SIZE: Final = Read(resources.read_size, resources.SIZE_SCHEMA)
INFRA: Final = Read(resources.read_infra, resources.INFRA_SCHEMA)
CARDS: Final = Read(resources.read_accelerators, resources.CARDS_SCHEMA)
REGION: Final = Read(_read_regions, {"type": "string"})
LABELS: Final = MapOf(Text("text", "write text"))

RECOVERY: Final = Record(
    "`job_recovery`",
    (
        Key(
            "strategy",
            WORD,
            "Kept for existing files: a lost host is replaced, unless it is `none`.",
        ),
        Key("max_restarts_on_errors", Whole(0, 1_000_000), "Restarts after failures."),
        Key("recover_on_exit_codes", EXIT_CODES, "Exit codes that are restarted."),
    ),
    unknown=teller("job_recovery"),
)
_ONE_NEED: Final = (
    Key("infra", INFRA, "Where: `cloud[/region[/zone]]`, `kubernetes/CONTEXT`, `ssh/POOL`,"
        " `slurm/CLUSTER`, `local`; `*` is any.", "anywhere"),
    Key("cloud", INFRA, "Old form of `infra`."),
    Key("region", REGION, "Old form of `infra`."),
    Key("zone", REGION, "Old form of `infra`."),
    Key("cpus", Read(resources.read_cpus, resources.CPUS_SCHEMA),
        "Cores of each node: `4`, `0.5`; `4+` is at least 4."),
    Key("memory", SIZE, "Memory of each node in GiB, or with a unit; `32+` is at least 32."),
    Key("accelerators", CARDS, "Cards of each node: `H100:8`; a map is any one of them, a list is"
        " in order of preference; `80GB+` is any card so large.", "none"),
    Key("gpus", CARDS, "Another word for `accelerators`."),
    Key("accelerator_args", Anything("object"), "Details of TPUs."),
    Key("instance_type", WORD, "A machine type of a cloud."),
    Key("use_spot", Flag(), "Cheaper capacity that the cloud may take back.", "false"),
    Key("job_recovery", ByForm(scalar=WORD, map=RECOVERY, wanted="a name or a map"),
        "What is restarted: the compatible form of `restart`."),
    Key("disk_size", SIZE, "Disk in GiB."),
    Key("ephemeral_storage", SIZE, "Old form of `disk_size`."),
    Key("disk_tier", WORD, "Speed of the disk: low, medium, high, ultra, best, none."),
    Key("network_tier", WORD, "Speed of the network: standard, best."),
    Key("local_disk", WORD, "Disk inside the machine: `nvme:1000+`."),
    Key("max_hourly_cost", Number(0.0), "Highest price of a node in USD per hour."),
    Key("ports", Read(resources.read_ports, resources.PORTS_SCHEMA),
        "Ports to open: `8080`, `1000-2000`, or a list."),
    Key("image_id", Read(resources.read_image, resources.IMAGE_SCHEMA),
        "Image to run in: `docker:IMAGE`, an image id, or a map of region to id."),
    Key("labels", LABELS, "Labels put on what is made at the infra."),
    Key("autostop", Anything(), "Stop of idle machines; here capacity is given back at the end."),
    Key("priority", Whole(-1000, 1000), "Order among waiting groups; the header's wins.", "0"),
    Key("priority_class", WORD, "Name of a priority class of the infra."),
    Key("volumes", Anything("array"), "Disks of a cloud, in the old form."),
)  # fmt: skip
ALTERNATIVE: Final = Record("an alternative", _ONE_NEED, unknown=teller("resources"), hidden=True)
RESOURCES: Final = Record(
    "`resources`",
    (
        *_ONE_NEED,
        Key("any_of", ListOf(ALTERNATIVE), "Alternatives, the cheapest that fits is taken; each is"
            " put over the keys beside it."),
        Key("ordered", ListOf(ALTERNATIVE), "Alternatives in order of preference."),
    ),
    unknown=teller("resources"),
    hidden=True,
)  # fmt: skip
GIT: Final = Record(
    "`workdir`",
    (Key("url", PLAIN, "A git repository."), Key("ref", PLAIN, "Branch, tag or commit.")),
)
STORAGE: Final = Record(
    "a file mount",
    (
        Key("name", Text("a name", "write the bucket's name", empty=False), "Name of the bucket."),
        Key("source", ListOf(Text("a path or URI", "write a path or a URI"), or_one=True),
            "Local path, or URI of a bucket."),
        Key("store", Choice(("s3", "gcs", "azure", "r2", "ibm", "oci", "nebius", "coreweave",
                             "vastdata", "hf", "volume"), any_case=True), "Kind of bucket."),
        Key("mode", Choice(("MOUNT", "COPY", "MOUNT_CACHED"), any_case=True),
            "How it gets there.", "MOUNT"),
        Key("persistent", Flag(), "Whether the bucket outlives the group.", "true"),
        Key("type", WORD, "Tuning of MOUNT_CACHED."),
        Key("mount_options", PLAIN, "Options of the mount."),
        Key("config", Anything("object"), "Details of the mount."),
    ),
    unknown=teller("file_mounts"),
)  # fmt: skip
VOLUME_KINDS: Final = tuple(kind for kind in VolumeKind if kind)
ACCESS_MODES: Final = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")
VOLUME_KIND: Final = Choice(VOLUME_KINDS, any_case=True)
_HOST_PATH: Final = Text("an absolute path", "begin with `/`", r"/.+")
_LABEL: Final = Text("a name", "write a word", r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_ACCESS: Final = (
    Key("storage_class_name", _LABEL, "Kubernetes: the storage class.", "the cluster's"),
    Key("access_mode", Choice(ACCESS_MODES, any_case=True),
        "Kubernetes: who may mount it at once.", "ReadWriteOnce"),
)  # fmt: skip
VOLUME_CONFIG: Final = Record(
    "`config` of a volume",
    (
        *_ACCESS,
        Key("namespace", _LABEL, "Kubernetes: the namespace.", "the context's"),
        Key("host_path", _HOST_PATH, "The folder of the host: needed for `nfs` and"
            " `k8s-hostpath`; of a `local` one instead of a folder of Argosy's."),
        Key("host", _LABEL, "The host of the pool where a `local` one is.",
            "where it is first used", ours=True),
    ),
)  # fmt: skip
VOLUME_FILE: Final = Record(
    "a volume file",
    (
        Key("name", Text("a name of small letters, digits and `-`", "such as `my-data`",
                         VOLUME_NAME), "The name."),
        Key("type", VOLUME_KIND, "`local`, `nfs`, `k8s-pvc`, `k8s-hostpath`.",
            "k8s-pvc where `infra` is kubernetes, else local"),
        Key("infra", INFRA, "Where it is: `local`, `ssh/POOL`, `kubernetes`.",
            "local; kubernetes for the k8s types; any for nfs"),
        Key("size", SIZE, "Its size."),
        Key("use_existing", Flag(), "It is there, and stays when the volume is deleted.", "false"),
        Key("labels", LABELS, "Labels, put on what is made at the infra."),
        Key("config", VOLUME_CONFIG, "Details."),
    ),
)  # fmt: skip
VOLUME: Final = Record(
    "a volume",
    (
        Key("name", PLAIN, "The name of a volume; beside `size`, tasks of the group share it by"
            " that name."),
        Key("sub_path", PLAIN, "A folder inside it."),
        Key("host_path", _HOST_PATH, "A folder of the host."),
        Key("mode", Choice(("rw", "ro", "read-only", "read-write"), any_case=True),
            "Whether it can be written.", "rw"),
        Key("read_only", Flag(), "Writes are refused.", "false", ours=True),
        Key("size", SIZE, "A new volume that lives as long as the group."),
        Key("type", VOLUME_KIND, "Of a new volume: `local`, `k8s-pvc`. Beside `host_path`: `nfs`"
            " says that it is the same on every host."),
        Key("labels", LABELS, "Labels of a new volume."),
        Key("config", Record("`config` of a new volume", _ACCESS), "Details of a new volume:"
            " `storage_class_name`, `access_mode`."),
    ),
)  # fmt: skip
PROBE: Final = Record(
    "`readiness_probe`",
    (
        Key("path", PLAIN, "Path that answers with a status below 400 when ready."),
        Key("initial_delay_seconds", Number(-1e-9), "Failures do not count before."),
        Key("timeout_seconds", Number(0.0), "Longest wait for an answer."),
        Key("endpoint_probe_interval_seconds", Number(0.0), "Pause between two questions."),
        Key("consecutive_failure_threshold_timeout", Number(0.0), "Seconds of failures in a row."),
        Key("post_data", Anything(), "Body to send."),
        Key("headers", MapOf(Text()), "Headers to send."),
    ),
    unknown=teller("readiness_probe"),
)
SERVICE: Final = Record(
    "`service`",
    (
        Key("readiness_probe", ByForm(scalar=PLAIN, map=PROBE, wanted="a path or a map"),
            "When the task counts as healthy: the compatible form of `ready`."),
        Key("ports", PORT, "Port to ask."),
        Key("replicas", Whole(0, 10_000), "Of SkyServe; starts nothing in a group."),
        Key("replica_policy", Anything("object"), "Of SkyServe; starts nothing in a group."),
        Key("load_balancing_policy", WORD, "Of SkyServe."),
        Key("load_balancer", Anything("object"), "Of SkyServe."),
        Key("tls", Anything("object"), "Of SkyServe."),
        Key("workers", Whole(0, 10_000), "Of pools."),
        Key("pool", Anything("object"), "Of pools."),
    ),
    unknown=teller("service"),
)  # fmt: skip
READY: Final = Record(
    "`ready`",
    (
        Key("http", Text("a path", "write `http: /health`", empty=False),
            "Path that answers with a status below 400 when ready."),
        Key("tcp", PORT, "Port that accepts connections when ready."),
        Key("command", Text("a command line", "write the command as text", script=True),
            "Command that exits 0 when ready."),
        Key("log", Text("a regular expression", "write it in single quotes", script=True),
            "Regular expression that a line of the log matches when ready."),
        Key("port", PORT, "Port of `http`.", "the only port of `balance` or `ports`"),
        Key("interval", Duration(1), "Pause between two questions.", "1s"),
        Key("timeout", Duration(1), "Longest wait for an answer.", "2s"),
        Key("failures", Whole(1, 1_000_000), "Failures in a row that make it unready.", "3"),
        Key("start_period", Duration(), "Failures do not count before.", "0s"),
    ),
    unknown=teller("ready"),
)  # fmt: skip
RESTART: Final = Record(
    "`restart`",
    (
        Key("on", ListOf(Text("`failure`, `lost` or an exit code", "write `on: [failure, lost]`",
                              r"failure|lost|[0-9]{1,3}"), or_one=True),
            "What is restarted: `failure` (any exit code but 0), single exit codes, `lost`. A lost"
            " host is replaced with every list but the empty one.", "[lost]"),
        Key("max", Whole(0, 1_000_000), "Restarts for failures, for each unit of the scope.",
            "without limit"),
        Key("backoff", Read(_read_backoff, {"type": ["string", "integer"]}),
            "Pause before a restart, from first to longest; it doubles.", "1s..5m"),
        Key("scope", Choice(("node", "task", "group")), "What is replaced together.",
            "task for num_nodes > 1, else node"),
        Key("with", ListOf(NAME, or_one=True), "Tasks that are restarted along.", "none"),
    ),
    unknown=teller("restart"),
)  # fmt: skip
SCRIPT: Final = Text("a script", "write `run: |` and the script below it, indented", script=True)
DURATION_OR_MAP: Final = ByForm(
    scalar=Duration(), map=MapOf(Duration()), wanted="a duration, or a map of task to duration"
)

TASK: Final = Record(
    "a task",
    (
        Key("name", NAME, "Name of the task; its nodes are reached at `NAME-0.GROUP`,"
            " `NAME-1.GROUP`. Needed in a group.", "the group's name"),
        Key("num_nodes", Whole(1, MAX_NODES), "How many nodes run the task.", "1"),
        Key("resources", RESOURCES, "What each node needs.", "any host"),
        Key("envs", ENVS, "Environment variables; null means that `--env` must give it."),
        Key("secrets", SECRETS, "Like `envs`, but shown nowhere; a list, or null, takes values"
            " from the submitter's environment."),
        Key("workdir", ByForm(scalar=PLAIN, map=GIT, wanted="a path, or a map with `url`"),
            "Folder that is copied to each node, where `run` begins; or a git repository."),
        Key("file_mounts", MapOf(ByForm(scalar=Text("a path or URI", "write a path", empty=False),
                                        map=STORAGE, wanted="a path, a URI or a map")),
            "Destination to source: what else is there before `setup`."),
        Key("volumes", MapOf(ByForm(scalar=PLAIN, map=VOLUME, wanted="a name or a map")),
            "Path to volume; a relative path lies in the working directory."),
        Key("setup", SCRIPT, "Bash that prepares a node, before any `run` of the group."),
        Key("run", SCRIPT, "Bash that is the task; the same on every node."),
        Key("depends_on", Read(_read_depends, {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}},
                      {"type": "object", "additionalProperties":
                       {"enum": ["started", "healthy", "succeeded"]}}]}),
            "Tasks that come first: a list, or a map to `started`, `healthy` or `succeeded`. A list"
            " means healthy where the other task has a probe, else started.", "none", ours=True),
        Key("ready", READY, "When a running node counts as healthy.", "when it runs", ours=True),
        Key("restart", RESTART, "What is restarted, how often, and what along with it.",
            "lost hosts only", ours=True),
        Key("balance", ListOf(PORT, or_one=True), "Ports that peers reach at `TASK.GROUP:PORT`,"
            " shared out over the healthy nodes.", "none", ours=True),
        Key("grace", Duration(), "Time from SIGTERM to SIGKILL.", "30s", ours=True),
        Key("strict", Flag(), "Run scripts with `set -euo pipefail`.", "false", ours=True),
        Key("ends_with", Choice(("all", "head")), "When a task of several nodes is over: when all"
            " nodes have ended, or when node 0 has.", "all", ours=True),
        Key("launcher", Choice(("torchrun",)), "Set what a launcher expects: `torchrun` sets"
            " MASTER_ADDR, MASTER_PORT, NNODES, NODE_RANK, NPROC_PER_NODE and WORLD_SIZE.",
            "none", ours=True),
        Key("service", SERVICE, "Compatible: only `readiness_probe` and `ports` mean something."),
        Key("config", Anything("object"), "Compatible: overrides of a client's configuration."),
        Key("event_callback", SCRIPT, "Compatible: bash that is called on changes."),
        Key("api_server_access", Flag(), "Compatible: access to the API from inside."),
        Key("managed_secrets", Anything("array"), "Compatible: secrets of a server's store."),
        Key("inputs", Anything("object"), "Compatible: size of what is read."),
        Key("outputs", Anything("object"), "Compatible: size of what is written."),
        Key("pool", Read(_read_pool, {"not": {}}), "Not supported in a group.", ignored=True),
        Key("file_mounts_mapping", Anything(), "Of dumped files.", ignored=True),
        Key("volume_mounts", Anything(), "Of dumped files.", ignored=True),
        Key("_metadata", Anything(), "Of dumped files.", ignored=True),
        Key("_user_specified_yaml", Anything(), "Of dumped files.", ignored=True),
    ),
    wanted="a map of keys",
    unknown=teller("task"),
)  # fmt: skip
HEADER: Final = Record(
    "the header",
    (
        Key("name", NAME, "Name of the group, and the last part of its host names.", "file name"),
        Key("execution", Choice(("parallel", "serial")), "All tasks together, or one after the"
            " success of the one before.", "serial"),
        Key("primary_tasks", ListOf(NAME, wanted="a list of task names"),
            "Tasks that decide when the group ends, and how.", "all tasks"),
        Key("termination_delay", DURATION_OR_MAP, "How long the other tasks go on after the"
            " primaries' success; a map is of task, or `default`, to duration.", "0s"),
        Key("inter_connection", Flag(), "true: names work, or it is an error; false: no names.",
            "names wherever possible"),
        Key("placement", Anything(), "Of early versions: ignored with a warning.", ignored=True),
        Key("start_timeout", Duration(1), "Deadline for the capacity of all tasks; then all is"
            " given back and tried again.", "15m", ours=True),
        Key("priority", Whole(-1000, 1000), "Order among waiting groups, then age.", "0",
            ours=True),
        Key("max_duration", Duration(1), "The group ends FAILED after so long.", "none", ours=True),
        Key("on_failure", Choice(("wait", "stop")), "wait: other primaries go on when one has"
            " failed; stop: the group ends.", "wait", ours=True),
        Key("restarts", Whole(0, 1_000_000), "How often the whole group may be started anew.", "0",
            ours=True),
        Key("envs", ENVS, "Defaults for all tasks.", ours=True),
        Key("secrets", SECRETS, "Defaults for all tasks.", ours=True),
        Key("resources", RESOURCES, "Defaults for all tasks.", ours=True),
        Key("infra", INFRA, "Default for all tasks.", ours=True),
        Key("_user_specified_yaml", Anything(), "Of dumped files.", ignored=True),
        Key("_metadata", Anything(), "Of dumped files.", ignored=True),
    ),
    closed=False,
    wanted="a map of keys",
)  # fmt: skip
