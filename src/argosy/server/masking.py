"""The text of a file with its secrets masked: what the API shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import yaml

from argosy.model.codec import MASK
from argosy.model.spec import GroupSpec

LEAST_LENGTH: Final = 6  # a shorter value is masked only where it is written as a secret


def masked(text: str, spec: GroupSpec) -> str:
    """`text` without the values under `secrets`, and without long secret values anywhere else."""
    spans = sorted(set(_spans(text)), reverse=True)
    for start, end in spans:
        text = f"{text[:start]}'{MASK}'{text[end:]}"
    values = {value for task in spec.tasks for _, value in task.secrets}
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= LEAST_LENGTH:
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
