"""Which document is the header and which are tasks, and what the command line sets in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from argosy.errors import InputErrors
from argosy.model.spec import Execution
from argosy.spec.keys.model import HEADER, MAX_TASKS, TASK
from argosy.spec.keys.shapes import braces, kind_of
from argosy.spec.source import broken
from argosy.spec.source.file import Items, Map, Node, Scalar, absent, value_of
from argosy.spec.source.notes import Mark, Notes
from argosy.spec.source.words import listed, nearest_word

_HEADER_ONLY: Final = frozenset(
    ("primary_tasks", "termination_delay", "inter_connection", "placement", "start_timeout",
     "max_duration", "on_failure", "restarts", "infra")
)  # fmt: skip
_TOGETHER: Final = ("primary_tasks", "termination_delay", "inter_connection", "placement")
_TASK_ONLY: Final = frozenset(key.name for key in TASK.keys) - {key.name for key in HEADER.keys}


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a file. Without a header, `header` is an empty map."""

    header: Map
    tasks: list[Map]
    execution: Execution
    single: bool  # one document, which is a task
    headed: bool  # there is a header


def lay_out(documents: list[Node], notes: Notes) -> Layout | None:
    """The parts of the file; None when it has none, and then errors were noted."""
    maps = [_as_map(node, notes) for node in documents]
    found = [one for one in maps if one is not None]
    if not documents:
        _nothing(notes)
    if len(found) < len(maps) or not found:
        return None
    first, rest = found[0], found[1:]
    headed = _is_header(first, bool(rest))
    tasks = rest if headed else found
    if len(tasks) > MAX_TASKS:
        broken.too_many(tasks[MAX_TASKS].mark, MAX_TASKS, notes)
    if headed and not tasks and not _lone_header(first, notes):
        return None
    header = first if headed else Map(Mark(1, 1))
    execution = _execution(header, notes) if headed else None
    if execution is None:
        single = len(found) == 1
        execution = Execution.PARALLEL if single else Execution.SERIAL
    return Layout(header, tasks or [Map(first.mark)], execution, len(found) == 1, headed)


def _as_map(node: Node, notes: Notes) -> Map | None:
    if isinstance(node, Map):
        if braces(node):
            broken.strange_key(node.mark, True, notes)
            return None
        return node
    if isinstance(node, Scalar) and broken.is_template(node.text):
        broken.strange_key(node.mark, True, notes)
    else:
        notes.error(
            node.mark, "no-map", f"this document is {kind_of(node)}, not a map of keys",
            "write the keys of a task, such as `run: ...`, or put `#` before text",
        )  # fmt: skip
    return None


def _nothing(notes: Notes) -> None:
    comments = any(line.strip() for line in notes.lines)
    notes.error(
        Mark(0, 0), "empty", "the file holds only comments" if comments else "the file is empty",
        "write a task: `run: echo hello`; `argosy init` makes a file to begin with",
    )  # fmt: skip


def _is_header(first: Map, more: bool) -> bool:
    keys = set(first.keys())
    if "execution" in keys:
        return not keys & {"run", "setup"}
    if not more:
        return False
    return keys == {"name"} or bool(keys & _HEADER_ONLY and not keys & _TASK_ONLY)


def _lone_header(first: Map, notes: Notes) -> bool:
    """A header and nothing else."""
    notes.error(
        first.mark, "no-tasks", "the file has a header, and no task after it",
        "add each task as a document of its own, after a line `---`",
    )  # fmt: skip
    return False


def _execution(header: Map, notes: Notes) -> Execution | None:
    node = header.get("execution")
    if node is not None and not absent(node):
        text = node.text if isinstance(node, Scalar) else ""
        if text in tuple(Execution):
            return Execution(text)
        if text:  # an error of `HEADER` follows; read on as what was meant
            near = nearest_word(text, tuple(Execution))
            return Execution(near) if near else Execution.PARALLEL
        return Execution.PARALLEL
    odd = [key for key, _ in header.pairs if key.text in _TOGETHER]
    if odd:
        notes.error(
            odd[0].mark, "no-execution",
            f"`{odd[0].text}` is for tasks that run together, and the header does not say"
            " `execution: parallel`",
            "add `execution: parallel` to the header",
        )  # fmt: skip
        return Execution.PARALLEL
    return Execution.SERIAL


def apply_sets(layout: Layout, sets: tuple[str, ...], notes: Notes) -> Layout:
    """The layout with each `--set TASK.KEY=VALUE` written into it; values are YAML.

    `*` in place of the task means every task, `group` the header; a single task needs no name.
    Null removes a key.
    """
    header, tasks = layout.header, list(layout.tasks)
    names = [_name(task) for task in tasks]
    for text in sets:
        flag = f"--set {text[:80]}"
        path, equals, value = text.partition("=")
        target, _, rest = path.partition(".")
        keys = rest.split(".") if rest else []
        if layout.single and target not in (*names, "*", "task", "group"):
            target, keys = "*", [target, *keys]  # a single task needs no name
        if not equals or not keys or not all(keys):
            _bad_set(flag, f"`{text[:60]}` is not `TASK.KEY=VALUE`",
                     "write it like `--set trainer.resources.cpus=1`", notes)  # fmt: skip
            continue
        chosen = [i for i, name in enumerate(names) if target in (name, "*")]
        if not chosen and target == "group":
            header = _with(header, keys, value, flag, notes)
            continue
        if not chosen and layout.single and target == "task":
            chosen = [0]
        if not chosen:
            near = nearest_word(target, names)
            hint = f"did you mean `{near}`?" if near else f"tasks: {listed(names)}; `*` is all"
            _bad_set(flag, f"there is no task `{target[:60]}`", hint, notes)
        for index in chosen:
            tasks[index] = _with(tasks[index], keys, value, flag, notes)
    return replace(layout, header=header, tasks=tasks)


def _with(node: Map, keys: list[str], value: str, flag: str, notes: Notes) -> Map:
    """A copy of `node` with one value replaced, maps made where they are missing."""
    mark = Mark(0, 0, flag)
    old = node.get(keys[0])
    new: Node
    if len(keys) == 1:
        new = _value(keys[0], value, flag)
    elif old is None or absent(old) or not isinstance(old, Map):
        new = _with(Map(mark), keys[1:], value, flag, notes)
    else:
        new = _with(old, keys[1:], value, flag, notes)
    key = Scalar(keys[0], keys[0], mark)
    pairs: list[tuple[Scalar, Node]] = [
        (name, new if name.text == keys[0] else kept) for name, kept in node.pairs
    ]
    if old is None:
        pairs.append((key, new))
    return Map(node.mark, pairs)


def _value(key: str, value: str, flag: str) -> Node:
    """The value as YAML; as it stands where the key takes a script, and where it is not YAML."""
    if key not in _SCRIPTS:
        try:
            return value_of(value, flag)
        except InputErrors:
            pass
    return Scalar(value, value, Mark(0, 0, flag), False)


def _bad_set(flag: str, text: str, hint: str, notes: Notes) -> None:
    notes.error(Mark(0, 0, flag), "bad-set", text, hint)


def with_defaults(task: Map, header: Map) -> Map:
    """The task with the header's `envs`, `secrets`, `resources` and `infra` beneath its own."""
    pairs = list(task.pairs)
    for key in ("envs", "secrets", "resources"):
        default, own = header.get(key), task.get(key)
        if default is None or absent(default):
            continue
        if own is None or absent(own):
            pairs = [pair for pair in pairs if pair[0].text != key]
            pairs.append((Scalar(key, key, default.mark), default))
        else:
            merged = _merged(default, own, key)
            pairs = [(name, merged if name.text == key else value) for name, value in pairs]
    infra = header.get("infra")
    made = Map(task.mark, pairs)
    if infra is None or absent(infra):
        return made
    return _with_infra(made, infra)


_SCRIPTS: Final = ("run", "setup", "command", "log", "event_callback")
_PLACES: Final = ("infra", "cloud", "region", "zone")


def _merged(default: Node, own: Node, key: str) -> Node:
    if key == "secrets":
        default, own = _secrets_map(default), _secrets_map(own)
    if not isinstance(default, Map) or not isinstance(own, Map):
        return own
    mine = set(own.keys())
    if key == "resources":
        mine |= set(_PLACES) if mine & set(_PLACES) else set()
        mine |= {"any_of", "ordered"} if mine & {"any_of", "ordered"} else set()
        mine |= {"accelerators", "gpus"} if mine & {"accelerators", "gpus"} else set()
    beneath = [pair for pair in default.pairs if pair[0].text not in mine]
    return Map(own.mark, [*beneath, *own.pairs])


def _secrets_map(node: Node) -> Node:
    if isinstance(node, Items) and all(isinstance(item, Scalar) for item in node.items):
        null = "null"
        return Map(node.mark, [
            (item, Scalar(null, None, item.mark)) for item in node.items if isinstance(item, Scalar)
        ])  # fmt: skip
    return node


def _with_infra(task: Map, infra: Node) -> Map:
    own = task.get("resources")
    key = Scalar("infra", "infra", infra.mark)
    if own is None or absent(own):
        made = Map(infra.mark, [(key, infra)])
        pairs = [pair for pair in task.pairs if pair[0].text != "resources"]
        return Map(task.mark, [*pairs, (Scalar("resources", "resources", infra.mark), made)])
    if not isinstance(own, Map) or set(own.keys()) & set(_PLACES):
        return task
    made = Map(own.mark, [*own.pairs, (key, infra)])
    return Map(
        task.mark, [(n, made if n.text == "resources" else value) for n, value in task.pairs]
    )


def _name(task: Map) -> str:
    node = task.get("name")
    return node.text if isinstance(node, Scalar) else ""
