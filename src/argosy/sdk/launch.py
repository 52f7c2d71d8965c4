"""The body of a launch: what a file needs from the submitter's machine, read in one place."""

from __future__ import annotations

import difflib
import getpass
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from argosy.errors import InputError, InputErrors, NotFound

if TYPE_CHECKING:
    from argosy.spec import Parsed, Warning_

FILE_BYTES_MOST = 16 << 20
_SECRETS = re.compile(r"^[ \t]*[\"']?secrets[\"']?[ \t]*:", re.MULTILINE)
_SCOPE = re.compile(r"(?:secrets:)?(?:(?:personal|workspace|global)\.)?")


def launch_body(
    file: str | Path,
    *,
    envs: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """What POST /v1/groups takes. `-` is standard input.

    Secrets that the file only names take their values from `environment` (default: the process's);
    nothing else of it is sent.
    `options` are the other keys of the body: name, infra, set, no_accelerators, network, replace,
    and for a plan secrets_later.
    """
    shown, base, text = read_text(file)
    around = os.environ if environment is None else environment
    return {
        "file": shown,
        "text": text,
        "base": str(base),
        "envs": dict(envs or {}),
        "secrets": dict(secrets or {}),
        "environ": {name: around[name] for name in secrets_named(text) if name in around},
        "user": user_name(),
        **options,
    }


def read_text(file: str | Path) -> tuple[str, Path, str]:
    """How messages call the file, the folder that its paths start from, and its text.

    Raises NotFound, or InputError when it can't be read or is not text.
    """
    shown, base, data = read_bytes(file)
    return shown, base, _decoded(shown, data)


def read_bytes(file: str | Path) -> tuple[str, Path, bytes]:
    """As `read_text`, not decoded."""
    if str(file) == "-":
        data = sys.stdin.buffer.read(FILE_BYTES_MOST + 1)
        return "<stdin>", Path.cwd(), _refuse_large("what comes from standard input", data)
    path = Path(file)
    try:
        with path.open("rb") as opened:
            data = opened.read(FILE_BYTES_MOST + 1)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}", code="file/missing", hint=_near(path)) from error
    except OSError as error:
        raise InputError(
            f"can't read {path}: {error.strerror or error}",
            code="file/unreadable",
            hint="give a file that you may read",
        ) from error
    return str(file), path.absolute().parent, _refuse_large(str(path), data)


def _refuse_large(what: str, data: bytes) -> bytes:
    if len(data) > FILE_BYTES_MOST:
        raise InputError(
            f"{what} is larger than {FILE_BYTES_MOST >> 20} MiB",
            code="file/large",
            hint="give the YAML file of a job group; data belongs into `file_mounts`",
        )
    return data


def missing_paths(parsed: Parsed) -> tuple[Warning_, ...]:
    """A warning for each file or folder of the submitter that is named and not there: a launch
    would refuse it. For this machine only.
    """
    from argosy.model.secrets import masked, secret_values
    from argosy.spec import Warning_

    secrets = secret_values(parsed.spec)
    return tuple(
        Warning_(
            masked(f"{one.what} is not there: {one.path}", secrets),
            one.place,
            "make it before the launch, or correct the path",
            "file/missing",
        )
        for one in parsed.local_paths
        if not os.path.exists(os.path.expanduser(one.path))
    )


def secrets_named(text: str) -> set[str]:
    """The secrets that a file names without a value; a file that is broken may name fewer."""
    if not _SECRETS.search(text):
        return set()
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    names: set[str] = set()
    try:
        for document in yaml.load_all(text, Loader=loader):
            secrets = document.get("secrets") if isinstance(document, dict) else None
            if isinstance(secrets, dict):
                secrets = [key for key, value in secrets.items() if value is None]
            for one in secrets if isinstance(secrets, list) else ():
                names.add(_SCOPE.sub("", str(one), count=1))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return names  # the server says what is wrong with the file, and where
    return names


def _decoded(shown: str, data: bytes) -> str:
    """The text. Raises InputError for what is none, in the words of `argosy validate`."""
    if b"\0" not in data:
        with suppress(UnicodeDecodeError):
            return data.decode("utf-8-sig")
    from argosy.spec.source.file import open_notes

    try:
        return open_notes(data, shown)[0]
    except InputErrors as several:
        raise several.errors[0] from None


def _near(path: Path) -> str:
    try:
        near = sorted(
            one.name for one in path.absolute().parent.iterdir() if one.suffix in (".yaml", ".yml")
        )
    except OSError:
        return f"there is no folder {path.parent} either"
    if not near:
        return "`argosy init` writes one to begin with"
    alike = difflib.get_close_matches(path.name, near, 5)
    others = [name for name in near if name not in alike]
    return "files there: " + ", ".join((alike + others)[:5])


def user_name() -> str:
    """Who this is: a number where the user has no name here."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
