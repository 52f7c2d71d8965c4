"""Rules of the house that no linter knows. Each failure says what to do instead.

An exception stands in a table below with its reason; one that is no longer needed fails too.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "src" / "argosy"
FUNCTION_LINES: Final = 60
FILE_LINES: Final = 500
PARAMETERS: Final = 7
# Ten modules can be overlooked at once; twelve leave room for a name that fits nowhere else.
FOLDER_MODULES: Final = 12

FOLDERS_LARGER: Final[Mapping[str, int]] = {
    # One program in one file of its own, in which a deeper path costs start time at each launch.
    "agent": 19,
    # A command each.
    "cli/commands": 16,
    # The loop, and an object each for what it keeps beside groups.
    "control": 15,
    # A step each, and what the steps share.
    "decide": 13,
    # A router each, and what the routers share.
    "server": 15,
    # The simulated world in parts, and the suite for infras.
    "testing": 16,
}
PARAMETERS_MORE: Final[Mapping[str, str]] = {
    "cli/commands/offline.py _overrides": "one for each flag of the command line",
    "testing/world_programs.py __init__": "a program is drawn from so many numbers",
}
CLOCKS: Final[Mapping[str, str]] = {
    "clock.py": "the only reader of time in the control plane",
    "agent": "a host's clock is its own; it runs where there is no clock.py",
    "runtime": "it stamps metrics inside a program",
    "cli": "ages on a screen, deadlines of a person who waits",
    "sdk": "deadlines of a person who waits",
    "infra/local/processes.py": "a kill is repeated until all are dead, in a thread of its own",
    "server/main.py": "when this process started",
    "store/store.py": "a server's id is drawn once, when its store is made",
    "testing": "seeds are drawn; a bench of real processes has deadlines",
}
TASKS: Final[Mapping[str, str]] = {
    "control/controller.py": "`spawn` keeps, names and removes",
    "infra/local/infra.py": "`_tasks` keeps, names and removes",
    "infra/ssh/desk.py": "one reader for each desk, ended by `close`",
    "infra/kubernetes/cluster/watch.py": "one for each watch, ended by `close`",
    "infra/kubernetes/early.py": "one for each pod, kept in `_tries`, ended by `close`",
    "infra/ssh/host.py": "one opening at a time, kept in `_opening`, ended by `close`",
    "server/answers.py": "a tuple that is awaited, then cancelled in `finally`",
    "server/sessions.py": "a tuple that is awaited, then cancelled in `finally`",
    "tasks.py": "a list that is cancelled, and awaited, in `finally`",
    "testing/infra_suite.py": "a test that cancels what it began",
}
PRINTS: Final[Mapping[str, str]] = {
    "cli": "it is what a person reads",
    "agent/main.py": "usage and errors, for whoever starts an agent by hand",
    "agent/commands.py": "answers of its commands",
    "server/main.py": "why the server can't start",
    "testing/sim.py": "the story of a seed",
}
CATCH_ALL: Final[Mapping[str, str]] = {
    "agent/child.py _work": "a forked child: its error is its answer",
    "agent/attempt/guests.py _become": "a forked child: its error is its last word",
    "agent/loop.py _call": "one failing callback must not end the loop of a host",
    "agent/net/linux/inside.py answer": "a forked child: its error is its answer",
    "agent/pod/container.py _become": "a forked child: its error is its last word",
    "agent/processes/launcher.py _program": "a forked child: its error is its last word",
    "control/actuator.py _acquire": "an infra's mistake is a refusal that people see",
    "cli/address.py shell_complete": "completion never disturbs a command line",
    "cli/following.py _read": "carried over to the thread that shows it",
    "cli/main.py run": "the last resort: an error gets a code and a hint",
    "control/controller.py kept": "a task's death is logged, not lost",
    "control/links.py run": "a link that fails is opened again, or its host is out of reach",
    "control/looker.py _look": "an infra's mistake is a look that saw nothing",
    "server/answers.py work": "a stream's error is its last line",
    "server/main.py run": "the last resort: logged and told",
    "server/sessions.py _session": "an error before the socket is open is its refusal",
    "store/writer.py _commit": "carried over to the caller whose job it was",
    "testing/sim.py run_seed": "told with its seed, then raised",
}
LOADED_BY_NAME: Final[Mapping[str, str]] = {
    "agent/main.py": "the program in the packed agent",
    "agent/net/proxy/serve.py": "a program that the supervisor starts by its path",
    "store/migrations": "Alembic finds them by their folder",
    "testing/sim.py": "python -m argosy.testing.sim",
}
NAMES_AVOIDED: Final[Mapping[str, str]] = {
    "util": "what it does",
    "utils": "what they do",
    "common": "what its users share",
    "helper": "what it answers",
    "helpers": "what they answer",
    "base": "the idea that its kinds share",
    "core": "what it decides",
    "manager": "what it keeps or starts",
    "handler": "what happened, or what it ensures",
    "misc": "two modules with names",
    "stuff": "a noun",
}
# How a text came about is no part of it: not by what, for whom, nor on whose order.
ORIGINS: Final = re.compile(
    r"\b(AI|A\.I\.|Claude|Anthropic|OpenAI|GPT|Copilot|assistant|chatbot"
    r"|(LLM|AI|machine|auto)[- ]generated|generated by|coding agent|helper agent|sub-?agent"
    r"|language model wrote|as requested|issue #?\d+|this session|the brief)\b"
)
TEXTS: Final = ("src", "tests", "examples", "docs", "scripts", "benchmarks", "recipes")
NOT_OURS: Final = (Path(__file__).resolve(), ROOT / "LICENSE")
TEXT_KINDS: Final = {".py", ".md", ".yaml", ".toml", ".sh", ".svg", ""}


@cache
def modules() -> dict[str, ast.Module]:
    """Each module of the product by its path under src/argosy."""
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def allowed(path: str, table: Mapping[str, object]) -> str:
    """The line of the table that names the file or a folder above it; "" when none does."""
    parts = path.split("/")
    names = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in table), "")


def judge(
    found: list[str], table: Mapping[str, object] | None = None, used: Set[str] = frozenset()
) -> None:
    """Fails with all that was found, and with lines of the table that nothing needs."""
    idle = [f"exception no longer needed: {key}" for key in table or () if key not in used]
    assert not found + idle, "\n" + "\n".join(found + idle)


def test_functions_are_short() -> None:
    judge(
        [
            f"src/argosy/{path}:{node.lineno}: {node.name} has {length} lines: split it at a noun"
            for path, node in functions()
            if (length := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
        ]
    )


def test_files_are_short() -> None:
    paths = [path for folder in TEXTS for path in sorted((ROOT / folder).rglob("*.py"))]
    judge(
        [
            f"{path.relative_to(ROOT)} has {length} lines: split it in two modules with names"
            for path in paths
            if (length := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES
        ]
    )


def test_functions_take_few_parameters() -> None:
    found, used = [], set()
    for path, node in functions():
        every = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        own = [argument for argument in every if argument.arg not in ("self", "cls")]
        # The parameters of a command or route are its flags or query: others wrote their number.
        if len(own) <= PARAMETERS or node.decorator_list:
            continue
        key = f"{path} {node.name}"
        used.add(key)
        if key not in PARAMETERS_MORE:
            found.append(f"{key} takes {len(own)} parameters: give what belongs together a class")
    judge(found, PARAMETERS_MORE, used)


def test_folders_are_small() -> None:
    counts = Counter(
        str(Path(path).parent) for path in modules() if Path(path).name != "__init__.py"
    )
    judge(
        [
            f"src/argosy/{folder} has {count} modules: make a folder of those that belong together"
            for folder, count in counts.items()
            if count > FOLDERS_LARGER.get(folder, FOLDER_MODULES)
        ],
        FOLDERS_LARGER,
        {folder for folder, count in counts.items() if count > FOLDER_MODULES},
    )


CLOCK_CALL: Final = re.compile(
    r"time\.\w+|(datetime\.)?(datetime|date)\.(now|utcnow|today)|uuid\.uuid[14]|random\.\w+"
    r"|secrets\.token_\w+|os\.urandom"
)


def test_time_and_chance_come_in_as_values() -> None:
    found, used = [], set()
    for path, tree in modules().items():
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        for node in ast.walk(tree):
            drawn = isinstance(node, ast.ImportFrom) and node.module in (
                "time",
                "random",
                "uuid",
                "secrets",
            )
            called = (
                isinstance(node, ast.Call)
                and CLOCK_CALL.fullmatch(ast.unparse(node.func))
                and (ast.unparse(node.func).split(".")[0] in imported | {"datetime", "date"})
            )
            if not (drawn or called):
                continue
            key = allowed(path, CLOCKS)
            used.add(key)
            if not key:
                found.append(
                    f"src/argosy/{path}:{node.lineno}: {ast.unparse(node)}:"
                    " take `now`, or `clock.Clock`; derive an id from what is known"
                )
    judge(found, CLOCKS, used)


def test_tasks_are_kept_by_somebody() -> None:
    found, used = [], set()
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name in ("asyncio.create_task", "asyncio.ensure_future") or name.endswith(
                "loop.create_task"
            ):
                used.add(allowed(path, TASKS))
                if not allowed(path, TASKS):
                    found.append(
                        f"src/argosy/{path}:{node.lineno}: {name}:"
                        " use a TaskGroup, or `Controller.spawn`"
                    )
    judge(found, TASKS, used)


def test_only_the_command_line_prints() -> None:
    found, used = [], set()
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                used.add(allowed(path, PRINTS))
                if not allowed(path, PRINTS):
                    found.append(
                        f"src/argosy/{path}:{node.lineno}: print: return it, or log it at the rim"
                    )
    judge(found, PRINTS, used)


def test_only_what_can_be_answered_is_caught() -> None:
    found, used = [], set()
    for path, node in functions():
        for handler in _own(node, ast.ExceptHandler):
            assert isinstance(handler, ast.ExceptHandler)
            names = ast.unparse(handler.type).strip("()").split(", ") if handler.type else ["all"]
            raised = isinstance(handler.body[-1], ast.Raise)  # as it is, or in our words
            if raised or not {"all", "Exception", "BaseException"} & set(names):
                continue
            key = f"{path} {node.name}"
            used.add(key)
            if key not in CATCH_ALL:
                found.append(f"{key}:{handler.lineno}: name the errors that you can answer")
    judge(found, CATCH_ALL, used | {key for key in CATCH_ALL if key.startswith("testing/")})


def _own(node: ast.AST, kind: type[ast.AST]) -> Iterator[ast.AST]:
    """Those in a function, without those in the functions inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, kind):
            yield child
        yield from _own(child, kind)


def test_nothing_is_left_to_be_done() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        with tokenize.open(path) as file:
            for token in tokenize.generate_tokens(file.readline):
                if token.type == tokenize.COMMENT and re.search(
                    r"\b(TODO|FIXME|XXX|HACK)\b", token.string
                ):
                    found.append(
                        f"{path.relative_to(ROOT)}:{token.start[0]}: do it, or say why not"
                    )
    judge(found)


def test_modules_and_public_names_say_what_they_are_for() -> None:
    found = []
    for path, tree in modules().items():
        if not ast.get_docstring(tree):
            found.append(f"src/argosy/{path}: open it with one sentence on what it is for")
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        # A method that a class of this module explains is explained for all that have it.
        told = {
            node.name for one in classes for node in one.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node)
        }  # fmt: skip
        public = [one for one in classes if not one.name.startswith("_")]
        for owner in [tree, *public]:
            for node in owner.body:
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    continue
                inherited = owner is not tree and node.name in told
                if not (node.name.startswith("_") or ast.get_docstring(node) or inherited):
                    found.append(
                        f"src/argosy/{path}:{node.lineno}: {node.name}:"
                        " say what a caller may rely on"
                    )
    judge(found)


def test_names_say_something() -> None:
    found = []
    for path, tree in modules().items():
        names = [(0, Path(path).stem), *((0, part) for part in Path(path).parent.parts)]
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names += [(node.lineno, node.name) for node in ast.walk(tree) if isinstance(node, kinds)]
        for line, name in names:
            words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
            for word in {word.lower() for word in words} & NAMES_AVOIDED.keys():
                found.append(
                    f"src/argosy/{path}:{line}: {name}: name it after {NAMES_AVOIDED[word]}"
                )
    judge(found)


def test_texts_do_not_tell_how_they_came_about() -> None:
    paths = [path for folder in TEXTS for path in (ROOT / folder).rglob("*")]
    paths += [path for path in ROOT.iterdir() if path.suffix in TEXT_KINDS]
    found = []
    for path in sorted(paths):
        if not path.is_file() or path.suffix not in TEXT_KINDS or path in NOT_OURS:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if word := ORIGINS.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {word[0]!r}: leave it out")
    judge(found)


def test_every_module_is_imported_by_something() -> None:
    wanted = {
        f"argosy.{path[:-3].replace('/', '.')}".removesuffix(".__init__"): path
        for path in modules()
    }
    trees = [(["argosy", *Path(path).parent.parts], tree) for path, tree in modules().items()]
    for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]:
        # What is shipped for users (the runtime, the suite) is imported by its tests at least.
        if path.name != Path(__file__).name:
            trees.append(([], ast.parse(path.read_text(encoding="utf-8"))))
    for package, tree in trees:
        for node in ast.walk(tree):
            for name in _imported(node, package):
                wanted.pop(name, None)
    judge(
        [
            f"src/argosy/{path}: nothing imports it: use it, or remove it"
            for name, path in wanted.items()
            if not allowed(path, LOADED_BY_NAME) and name != "argosy"
        ]
    )


def _imported(node: ast.AST, package: list[str]) -> Iterator[str]:
    """The modules that a statement names, and the texts that could name one loaded late."""
    if isinstance(node, ast.Import):
        yield from _parents([alias.name for alias in node.names])
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        place = ".".join([*above, *filter(None, [node.module])])
        yield from _parents([place, *(f"{place}.{alias.name}" for alias in node.names)])
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _parents([node.value.partition(":")[0]])
        yield f"{'.'.join(package)}.commands.{node.value}"
        if re.fullmatch(r"[a-z_.]+", node.value):
            yield f"argosy.{node.value}"
            yield f"{'.'.join(package)}.{node.value}"


def _parents(names: list[str]) -> Iterator[str]:
    for name in names:
        parts = name.split(".")
        yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


@pytest.mark.parametrize("folder", ["agent", "runtime"])
def test_what_runs_without_argosy_imports_only_itself_and_the_standard_library(folder: str) -> None:
    found = []
    for path, tree in modules().items():
        if not path.startswith(f"{folder}/"):
            continue
        depth = len(Path(path).parts) - 1  # folders below argosy: `..` may not leave the first one
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [] if 0 < node.level <= depth else [node.module or "." * node.level]
            found += [
                f"src/argosy/{path}:{node.lineno}: imports {name}:"
                " use a relative import, or the standard library"
                for name in names
                if name.split(".")[0] not in sys.stdlib_module_names
            ]
    judge(found)
