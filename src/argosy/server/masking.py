"""A file and what was understood of it, with secrets masked: what the API shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from argosy.model.codec import MASK
from argosy.model.spec import GroupSpec

LEAST_LENGTH: Final = 6  # a shorter value is masked only where it is written as a secret


def masked(text: str, spec: GroupSpec) -> str:
    """`text` without the values under `secrets`, and without long secret values anywhere else."""
    text = text.removeprefix("\ufeff")  # which the places do not count
    spans = sorted(set(_spans(text)), reverse=True)
    for start, end in spans:
        text = f"{text[:start]}'{MASK}'{text[end:]}"
    return _without(text, _values(spec))


def masked_data(data: Any, spec: GroupSpec) -> Any:
    """JSON data of a spec without long secret values, which may have been put into paths."""
    values = _values(spec)

    def walk(one: Any) -> Any:
        if isinstance(one, str):
            return _without(one, values)
        if isinstance(one, dict):
            return {name: walk(value) for name, value in one.items()}
        return [walk(value) for value in one] if isinstance(one, list) else one

    return walk(data) if values else data


def _values(spec: GroupSpec) -> list[str]:
    """The secret values that are masked anywhere, the longest first."""
    every = {value for task in spec.tasks for _, value in task.secrets}
    return sorted((one for one in every if len(one) >= LEAST_LENGTH), key=len, reverse=True)


def _without(text: str, values: list[str]) -> str:
    for value in values:
        text = text.replace(value, MASK)
    return text


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
