"""A file and what was understood of it, with secrets masked: what the API shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from argosy.errors import ArgosyError, InputErrors
from argosy.model import secrets
from argosy.model.codec import MASK
from argosy.model.spec import GroupSpec


def masked(text: str, spec: GroupSpec) -> str:
    """`text` without the values under `secrets`, and without long secret values anywhere else."""
    text = text.removeprefix("\ufeff")  # which the places do not count
    spans = sorted(set(_spans(text)), reverse=True)
    for start, end in spans:
        text = f"{text[:start]}'{MASK}'{text[end:]}"
    return secrets.masked(text, secrets.secret_values(spec))


def masked_data(data: Any, spec: GroupSpec) -> Any:
    """JSON data of a spec without long secret values, which may have been put into paths."""
    values = secrets.secret_values(spec)

    def walk(one: Any) -> Any:
        if isinstance(one, str):
            return secrets.masked(one, values)
        if isinstance(one, dict):
            return {name: walk(value) for name, value in one.items()}
        return [walk(value) for value in one] if isinstance(one, list) else one

    return walk(data) if values else data


@contextmanager
def masked_errors(spec: GroupSpec) -> Iterator[None]:
    """Errors that are raised here name paths of the spec without secret values."""
    try:
        yield
    except ArgosyError as error:
        values = secrets.secret_values(spec)
        for one in (error, *(error.errors if isinstance(error, InputErrors) else ())):
            one.text = secrets.masked(one.text, values)
            one.hints = tuple(secrets.masked(hint, values) for hint in one.hints)
            one.args = (one.text,)
        raise


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where values of `secrets` mappings stand. Nothing where the text is no YAML any more."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for document in yaml.compose_all(text, Loader=loader):
            yield from _secrets_of(document)
    except yaml.YAMLError:
        return


def _secrets_of(document: yaml.Node | None) -> Iterator[tuple[int, int]]:
    if not isinstance(document, yaml.MappingNode):
        return
    for key, value in document.value:
        if key.value == "secrets" and isinstance(value, yaml.MappingNode):
            for _, one in value.value:
                if one.end_mark.index > one.start_mark.index:
                    yield one.start_mark.index, one.end_mark.index
