"""Environment variables and secrets of a task, and their substitution into paths."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from argosy.spec.keys.model import ENVS, SECRETS
from argosy.spec.overrides import ENV_NAME, Overrides
from argosy.spec.source.file import Items, Map, Node, Scalar, absent
from argosy.spec.source.notes import Mark, Notes

MAX_VARIABLE: Final = 131_071  # bytes of NAME=VALUE: the kernel's MAX_ARG_STRLEN, less the NUL
MAX_ENVIRONMENT: Final = 1_500_000  # bytes of all of them, beside the arguments (ARG_MAX)
_VARIABLE = re.compile(r"\$(?:\{([^}]*)(\}?)|([A-Za-z_][A-Za-z0-9_]*))", re.ASCII)
_SCOPE = re.compile(r"^(?:secrets:)?(?:(?:personal|workspace|global)\.)?")


@dataclass(slots=True)
class Missing:
    """Variables without a value, over all tasks: name to where it was written first."""

    envs: dict[str, Mark] = field(default_factory=dict)
    secrets: dict[str, Mark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Variables:
    """What a task's programs get. A name is in one of the two."""

    envs: dict[str, str]
    secrets: dict[str, str] = field(repr=False)

    def value(self, name: str) -> str | None:
        """The value of a variable; None when there is none of that name."""
        return self.secrets.get(name, self.envs.get(name))


def variables_of(task: Map, overrides: Overrides, missing: Missing, notes: Notes) -> Variables:
    """The variables of one task, after `--env` and `--secret`."""
    envs = _envs(task, overrides, missing, notes)
    secrets = _secrets(task, overrides, missing, notes)
    notes.hide(secrets.values())
    for name in set(envs) & set(secrets):
        value = task.get("secrets")
        notes.warn(
            value.mark if value is not None else task.mark,
            "env-and-secret",
            f"`{name}` is both in `envs` and in `secrets`; the secret counts",
            f"remove `{name}` from `envs`",
        )
        del envs[name]
    _check_sizes(task, {**envs, **secrets}, notes)
    return Variables(envs, secrets)


def _envs(task: Map, overrides: Overrides, missing: Missing, notes: Notes) -> dict[str, str]:
    given = dict(overrides.envs)
    node = task.get("envs")
    read = None if absent(node) or node is None else ENVS.read(node, "envs", notes)
    values: dict[str, str] = {}
    for key, (value,) in read or ():
        if not _good_name(key, notes):
            continue
        if key.text in given:
            values[key.text] = given[key.text]
        elif value is None:
            missing.envs.setdefault(key.text, key.mark)
            values[key.text] = ""
        else:
            _warn_of_literal(key, value, notes)
            values[key.text] = value
    return {**values, **given}


def _warn_of_literal(key: Scalar, value: str, notes: Notes) -> None:
    """`KEY: ${KEY}` is kept as it stands, and is seldom meant so."""
    if value in (f"${key.text}", f"${{{key.text}}}"):
        notes.warn(
            key.mark, "literal-variable",
            f"`{key.text}` is the text `{value}` itself: nothing is substituted in `envs`",
            f"write `{key.text}: null` and launch with `--env {key.text}`, which takes the value"
            " from your environment",
        )  # fmt: skip


def _secrets(task: Map, overrides: Overrides, missing: Missing, notes: Notes) -> dict[str, str]:
    given, environ = dict(overrides.secrets), dict(overrides.environ)
    node = task.get("secrets")
    read = None if absent(node) or node is None else SECRETS.read(node, "secrets", notes)
    values: dict[str, str] = {}
    for key, (value,) in read or ():
        name = _SCOPE.sub("", key.text, count=1) if value is None else key.text
        if not _good_name(Scalar(name, name, key.mark), notes, secret=True):
            continue
        if name in given:
            values[name] = given[name]
        elif value is not None:
            values[name] = value
        elif name in environ:
            values[name] = environ[name]
        else:
            missing.secrets.setdefault(name, key.mark)
            values[name] = ""
    return {**values, **given}


def _good_name(key: Scalar, notes: Notes, *, secret: bool = False) -> bool:
    if ENV_NAME.fullmatch(key.text):
        return True
    notes.error(
        key.mark,
        "env-name",
        "this cannot be the name of a secret"  # it may be the secret itself
        if secret
        else f"`{key.text[:60]}` cannot be the name of a variable",
        "use letters, digits and `_`, and begin with a letter or `_`",
    )
    return False


def _check_sizes(task: Map, values: dict[str, str], notes: Notes) -> None:
    total = 0
    for name, value in values.items():
        size = len(name.encode()) + 1 + len(value.encode("utf-8", "surrogateescape"))
        total += size + 1
        if size > MAX_VARIABLE:
            notes.error(
                _written(task, name), "env-too-large",
                f"`{name}` has {size:,} bytes; Linux takes {MAX_VARIABLE:,} for one variable",
                "put the value into a file and name it in `file_mounts`",
            )  # fmt: skip
    if total > MAX_ENVIRONMENT:
        notes.error(
            task.mark, "env-too-large",
            f"the variables of this task have {total:,} bytes; at most {MAX_ENVIRONMENT:,} fit",
            "put large values into files and name them in `file_mounts`",
        )  # fmt: skip


def _written(task: Map, name: str) -> Mark:
    for block in (task.get("envs"), task.get("secrets")):
        if isinstance(block, Map):
            for key, value in block.pairs:
                if key.text == name:
                    return value.mark
    return task.mark


def note_missing(missing: Missing, notes: Notes, *, secrets_later: bool) -> None:
    """One error for each variable without a value; the hint gives all of them at once.

    With `secrets_later` those of secrets are warnings.
    """
    every = " ".join(f"--env {name}=..." for name in missing.envs)
    for name, mark in missing.envs.items():
        notes.error(
            mark, "missing-env", f"`{name}` has no value: null means that it must be given",
            f"launch with `{every}`; for an empty value write `{name}: \"\"`",
        )  # fmt: skip
    every = " ".join(f"--secret {name}" for name in missing.secrets)
    for name, mark in missing.secrets.items():
        tell = notes.warn if secrets_later else notes.error
        tell(
            mark, "missing-secret",
            f"the secret `{name}` has no value, here or in your environment",
            f"`export {name}=...` and launch again, or launch with `{every}`"
            " (`--secret NAME=VALUE` gives a value)",
        )  # fmt: skip


def substituted(node: Node, about: str, variables: Variables, notes: Notes) -> Node:
    """`node` with `$NAME` and `${NAME}` replaced, in keys too. A name without value is an error."""
    match node:
        case Map():
            return Map(
                node.mark,
                [
                    (
                        _text(key, about, variables, notes),
                        substituted(value, about, variables, notes),
                    )
                    for key, value in node.pairs
                ],
                node.flow,
            )
        case Items():
            return Items(
                node.mark, [substituted(item, about, variables, notes) for item in node.items]
            )
        case Scalar():
            return _text(node, about, variables, notes)


def _text(node: Scalar, about: str, variables: Variables, notes: Notes) -> Scalar:
    if "$" not in node.text or not isinstance(node.native, str):
        return node
    strict = about != "service"  # bodies of requests may hold any `$`

    def put_in(found: re.Match[str]) -> str:
        name = found.group(1) if found.group(3) is None else found.group(3)
        value = variables.value(name) if found.group(2) != "" else None
        if value is None and strict:
            _unknown(node, about, found.group(0), variables, notes)
        return found.group(0) if value is None else value

    text = _VARIABLE.sub(put_in, node.text)
    return Scalar(text, text, node.mark, node.plain)


def _unknown(node: Scalar, about: str, found: str, variables: Variables, notes: Notes) -> None:
    name = re.match(r"[A-Za-z_]\w*", found.strip("${}"))
    odd = re.fullmatch(r"\$\{?[A-Za-z_]\w*\}?", found) is None
    hint = (
        "only `$NAME` and `${NAME}` are substituted: give the default in `envs`"
        if odd
        else f"add `{name.group() if name else 'NAME'}` to `envs`, or write the value"
    )
    notes.error(
        node.mark, "variable",
        f"`{about}` holds `{found[:60]}`, which is neither in `envs` nor in `secrets`", hint,
    )  # fmt: skip
