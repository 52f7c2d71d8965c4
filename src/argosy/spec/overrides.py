"""What the command line changes about a file: variables, single keys, infra, name, network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from argosy.errors import InputError, InputErrors, Place

ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
MAX_ENV_FILE: Final = 1 << 20  # characters
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"}


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line says about a file. Text pairs are (name, value), in their order."""

    name: str = ""
    infra: str = ""
    envs: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    sets: tuple[str, ...] = ()  # "trainer.resources.cpus=1"
    no_accelerators: bool = False
    network: str = ""  # "isolated", "host" or ""
    # the submitter's environment: what `secrets: [NAME]` may take
    environ: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def interpret_pairs(
    texts: Iterable[str], environ: Mapping[str, str], *, flag: str
) -> tuple[tuple[str, str], ...]:
    """`NAME=VALUE` as pairs; a bare `NAME` takes its value from `environ`.

    `flag` is what the texts came with (`--env`), for messages. Raises InputErrors with all that
    is wrong.
    """
    pairs: list[tuple[str, str]] = []
    errors: list[InputError] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not ENV_NAME.fullmatch(name):
            errors.append(_bad_name(name, Place(f"{flag} {_shown(text, flag)}")))
        elif not equals and name not in environ:
            errors.append(
                InputError(
                    f"`{flag} {name}` has no value, and `{name}` is not set in your environment",
                    code="spec/env-unset",
                    hint=f"write `{flag} {name}=VALUE`, or `export {name}=VALUE` before",
                    place=Place(f"{flag} {name}"),
                )
            )
        else:
            pairs.append((name, value if equals else environ[name]))
    if errors:
        raise InputErrors(tuple(errors))
    return tuple(pairs)


def interpret_env_file(text: str, *, file: str = "env file") -> tuple[tuple[str, str], ...]:
    """The variables of a dotenv file, in its order; the last of a name counts.

    One `NAME=value` a line; `export ` before and `# comment` after are allowed; single quotes keep
    everything, double quotes know `\\n`, `\\t`, `\\"` and `\\\\`. Nothing is substituted.
    Raises InputErrors with all that is wrong.
    """
    pairs: dict[str, str] = {}
    errors: list[InputError] = []
    if len(text) > MAX_ENV_FILE:
        what = f"the file is longer than {MAX_ENV_FILE:,} characters"
        raise InputError(what, code="spec/env-file", hint="give less", place=Place(file))
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        value = _unquoted(found.group(2)) if found else None
        if found is None or value is None:
            errors.append(
                InputError(
                    "this line is not `NAME=value`" if found is None else "a quote is not closed",
                    code="spec/env-file",
                    hint="write one `NAME=value` a line; values that begin with a quote must end"
                    " with it",
                    place=Place(file, number, 1),  # without the source: it may be a secret
                )
            )
        else:
            pairs[found.group(1)] = value
    if errors:
        raise InputErrors(tuple(errors))
    return tuple(pairs.items())


def _unquoted(text: str) -> str | None:
    if text[:1] == "'":
        end = text.find("'", 1)
        return text[1:end] if end > 0 and _comment(text[end + 1 :]) else None
    if text[:1] == '"':
        closed = re.fullmatch(r'"((?:[^"\\]|\\.)*)"(.*)', text, re.DOTALL)
        if closed is None or not _comment(closed.group(2)):
            return None
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), closed.group(1))
    return re.split(r"(?:^|\s+)#", text, maxsplit=1)[0]


def _comment(text: str) -> bool:
    return not text.strip() or text.lstrip().startswith("#")


def _shown(text: str, flag: str) -> str:
    return text.partition("=")[0] if flag == "--secret" else text[:60]


def _bad_name(name: str, place: Place) -> InputError:
    return InputError(
        f"`{name[:60]}` cannot be the name of a variable",
        code="spec/env-name",
        hint="use letters, digits and `_`, and begin with a letter or `_`",
        place=place,
    )
