"""What a node needs, in the words of the file: cpus, memory, accelerators, ports, infra."""

from __future__ import annotations

import re
from typing import Final

from argosy.model.needs import Accelerator
from argosy.spec.keys.shapes import Json, dollar, not_substituted, number, wrong
from argosy.spec.source.file import Items, Map, Node, Scalar, absent
from argosy.spec.source.notes import Notes
from argosy.spec.source.words import listed, nearest_word

INFRAS: Final = (
    "local", "ssh", "slurm", "kubernetes", "aws", "azure", "gcp", "ibm", "lambda", "scp", "oci",
    "runpod", "vast", "vsphere", "cudo", "fluidstack", "paperspace", "primeintellect", "do",
    "nebius", "hyperbolic", "seeweb", "shadeform", "yotta", "mithril", "verda", "hetzner",
)  # fmt: skip
CARDS: Final = (
    "A10", "A10G", "A30", "A40", "A100", "A100-80GB", "A16", "A6000", "B100", "B200", "B300",
    "GB200", "GB300", "GH200", "H100", "H100-SXM", "H100-MEGA", "H200", "H200-SXM", "H20", "H800",
    "A800", "K80", "L4", "L40", "L40S", "M60", "M4000", "MI100", "MI210", "MI250", "MI300X",
    "MI325X", "P4", "P40", "P100", "RTX3060", "RTX3070", "RTX3080", "RTX3090", "RTX4000",
    "RTX4090", "RTX5000", "RTX5090", "RTX6000", "RTX6000-Ada", "RTXPRO6000", "T4", "T4g", "V100",
    "V100-32GB", "Gaudi", "Gaudi2", "Gaudi3", "Trainium", "Trainium2", "Inferentia", "Inferentia2",
)  # fmt: skip
_SPELLING: Final = {name.lower(): name for name in CARDS}
_SIZES: Final = {"b": -30, "k": -20, "m": -10, "g": 0, "t": 10, "p": 20}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kmgtp]?)(i?b|i)?(\+?)", re.I | re.ASCII)
_MEMORY_OF_CARD = re.compile(r"([0-9]{1,6})([gmt])b(\+?)", re.I | re.ASCII)
MAX_COUNT: Final = 1024  # cards of one node
MAX_PORT: Final = 65535


def size_gib(text: str) -> tuple[float, bool] | None:
    """Memory or disk in GiB, and whether it is exact: `32+`, `16Gi`, `1500MB`; None: neither.

    A bare number is GiB, and GB means GiB too, as existing files have it.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    unit = found.group(2).lower() or ("b" if found.group(3) else "g")
    if found.group(3) and found.group(3).lower() == "i" and not found.group(2):
        return None
    return float(found.group(1)) * 2.0 ** _SIZES[unit], not found.group(4)


def read_size(node: Node, about: str, notes: Notes) -> tuple[float, bool] | None:
    """A size, as (GiB, exact)."""
    found = None
    if isinstance(node, Scalar) and not isinstance(node.native, bool):
        if dollar(node.text):
            not_substituted(node.mark, about, node.text, notes)
            return None
        found = size_gib(node.text)
    if found is None or found[0] <= 0:
        hint = f"write `{about.rpartition('.')[2]}: 16` (GiB), `16GB`, `1500MB` or `16+` (at least)"
        wrong(node, about, "a size above 0", hint, notes)
        return None
    return found


def read_cpus(node: Node, about: str, notes: Notes) -> tuple[float, bool] | None:
    """`4`, `"4"`, `0.5` or `"4+"`, as (cores, exact)."""
    if isinstance(node, Scalar) and dollar(node.text):
        not_substituted(node.mark, about, node.text, notes)
        return None
    text = node.text.strip() if isinstance(node, Scalar) and node.native is not None else ""
    exact = not text.endswith("+")
    bare = text.removesuffix("+")
    good = re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?|\.[0-9]{1,6}", bare, re.ASCII)
    if not good or float(bare) <= 0:
        hint = "write `cpus: 4`, `cpus: 0.5` or `cpus: 4+` (at least)"
        wrong(node, about, "a number of cores above 0", hint, notes)
        return None
    return float(bare), exact


def read_ports(node: Node, about: str, notes: Notes) -> tuple[str, ...] | None:
    """`8080`, `"8080"`, `1000-2000`, or a list of them, as text."""
    nodes = node.items if isinstance(node, Items) else [node]
    found = [_port(one, about, notes) for one in nodes]
    return None if None in found else tuple(dict.fromkeys(p for p in found if p))


def _port(node: Node, about: str, notes: Notes) -> str | None:
    text = node.text.strip() if isinstance(node, Scalar) and node.native is not None else ""
    if dollar(text):
        not_substituted(node.mark, about, text, notes)
        return None
    form = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text, re.ASCII)
    if form:
        first, last = int(form.group(1)), int(form.group(2) or form.group(1))
        if 1 <= first <= last <= MAX_PORT:
            return f"{first}-{last}" if form.group(2) else str(first)
    wrong(
        node, about, f"ports from 1 to {MAX_PORT}",
        "write `ports: 8080`, `ports: 1000-2000`, or a list of those", notes,
    )  # fmt: skip
    return None


def read_infra(node: Node, about: str, notes: Notes) -> str | None:
    """`aws/us-east-1`, `k8s/context`, `ssh/lab`, `local`, `*`: normalised; k8s is kubernetes."""
    text = node.text.strip() if isinstance(node, Scalar) and node.native is not None else ""
    if dollar(text):
        not_substituted(node.mark, about, text, notes)
        return None
    kind, _, rest = text.partition("/")
    kind = {"k8s": "kubernetes"}.get(kind.lower(), kind.lower())
    hint = f"write one of: {listed(INFRAS)}; then `/region` or `/name`"
    if kind != "*" and kind not in INFRAS:
        near = nearest_word(kind, (*INFRAS, "k8s"))
        near_hint = f"did you mean `{near}{'/' + rest if rest else ''}`?" if near else hint
        wrong(node, about, "an infra that Argosy knows", near_hint, notes)
        return None
    parts = rest.split("/") if rest else []
    deep = len(parts) > 2 and kind != "kubernetes"
    if deep or (text.endswith("/")) or any(not part.strip() for part in parts):
        wrong(node, about, "`cloud[/region[/zone]]`", hint, notes)
        return None
    return "/".join((kind, *parts))


def read_accelerators(
    node: Node, about: str, notes: Notes
) -> tuple[tuple[Accelerator, ...], bool] | None:
    """Any one of the cards, and whether they are in order of preference (a list is)."""
    match node:
        case Scalar():
            found = [_card(node, node.text, None, about, notes)]
        case Map():
            found = _cards_of_map(node, about, notes)
        case Items():
            found = []
            for item in node.items:
                if isinstance(item, Map):  # [{T4: 1}, {L4: 1}]
                    found += _cards_of_map(item, about, notes)
                else:
                    text = item.text if isinstance(item, Scalar) else ""
                    found.append(_card(item, text, None, about, notes))
    cards = tuple(dict.fromkeys(card for card in found if card is not None))
    if not found or None in found:
        if not found:
            wrong(node, about, "at least one card", "write `accelerators: H100:8`", notes)
        return None
    return cards, isinstance(node, Items) and len(cards) > 1


def _cards_of_map(node: Map, about: str, notes: Notes) -> list[Accelerator | None]:
    joined = [key.text for key, value in node.pairs if absent(value) and ":" in key.text]
    if node.flow and joined:
        meant = " or ".join(text.replace(":", ": ") for text in joined)
        notes.warn(
            node.mark,
            "accelerator-form",
            f"YAML reads `{joined[0]}` without a space as one word; it is taken as {meant}",
            f"write `{{{joined[0].replace(':', ': ')}}}` with a space, or without braces",
        )
    elif node.flow and any(absent(value) for _, value in node.pairs):
        notes.warn(
            node.mark,
            "accelerator-form",
            "`{...}` without counts is read as any one of these, one card each",
            f"write `[{listed(node.keys())}]` for an order of preference, or give counts",
        )
    return [
        _card(key, key.text, None if absent(value) else value, about, notes)
        for key, value in node.pairs
    ]


def _card(
    node: Node, text: str, count_node: Node | None, about: str, notes: Notes
) -> Accelerator | None:
    """One card of `NAME`, `NAME:COUNT`, `80GB+`, `80GB+:2` or `MAKER:80GB+:2`."""
    if dollar(text):
        not_substituted(node.mark, about, text, notes)
        return None
    parts = [part.strip() for part in text.split(":")]
    if parts and parts[0].lower() in ("nvidia", "amd") and len(parts) > 1:
        parts = parts[1:]
    count = 1 if len(parts) == 1 else _count(parts[1])
    if count_node is not None and count is not None:
        count = _count(str(number(count_node)))
    memory = _MEMORY_OF_CARD.fullmatch(parts[0])
    name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_. +-]{0,40}", parts[0], re.ASCII)
    if len(parts) > 2 or count is None or not name:
        wrong(
            node if count_node is None else count_node, about,
            "a card and a whole number of them",
            "write `H100`, `H100:8`, `{H100: 8}`, `80GB+`, or a list of those", notes,
        )  # fmt: skip
        return None
    if memory:
        gib = float(memory.group(1)) * 2.0 ** _SIZES[memory.group(2).lower()]
        return Accelerator("", count, gib)
    return Accelerator(_SPELLING.get(parts[0].lower(), parts[0]), count)


def _count(text: str) -> int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() and 1 <= value <= MAX_COUNT else None


def read_image(node: Node, about: str, notes: Notes) -> str | None:
    """`docker:IMAGE`, `IMAGE`, or `{region: id}`, which is kept as `region=id,...`."""
    if isinstance(node, Map):
        pairs = [(k.text, v.text) for k, v in node.pairs if isinstance(v, Scalar) and v.native]
        if pairs and len(pairs) == len(node.pairs):
            return ",".join(f"{region}={image}" for region, image in pairs)
    text = node.text.strip() if isinstance(node, Scalar) and node.native is not None else ""
    if dollar(text):
        not_substituted(node.mark, about, text, notes)
        return None
    if not text or re.search(r"\s", text) or text == "docker:":
        hint = "write `image_id: docker:ubuntu:24.04`"
        wrong(node, about, "an image, or a map of region to image", hint, notes)
        return None
    return text


SIZE_SCHEMA: Final[Json] = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0},
              {"type": "string", "pattern": "^[0-9.]+ ?([kKmMgGtTpP]?)([iI]?[bB]|[iI])?[+]?$"}]
}  # fmt: skip
CPUS_SCHEMA: Final[Json] = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0},
              {"type": "string", "pattern": "^[0-9.]+[+]?$"}]
}  # fmt: skip
_PORT: Final[list[Json]] = [
    {"type": "integer", "minimum": 1, "maximum": MAX_PORT},
    {"type": "string", "pattern": "^[0-9]+(-[0-9]+)?$"},
]
PORTS_SCHEMA: Final[Json] = {
    "anyOf": [*_PORT, {"type": "array", "items": {"anyOf": _PORT}}, {"type": "null"}]
}
CARDS_SCHEMA: Final[Json] = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
        {"type": "array", "items": {"type": ["string", "object"]}},
    ]
}
IMAGE_SCHEMA: Final[Json] = {
    "anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]
}
INFRA_SCHEMA: Final[Json] = {"type": "string", "examples": list(INFRAS[:5])}
