"""File names for ids, and short names for texts."""

from __future__ import annotations

import zlib

NAME_MAX = 200


def digest(*parts: str) -> str:
    """A short name for texts, to see whether they changed (no protection against malice)."""
    body = "\0".join(parts).encode("utf-8", "surrogateescape")
    return "%08x%08x%x" % (zlib.crc32(body), zlib.adler32(body), len(body))


def safe_name(text: str) -> str:
    """A file name for any text: the same for the same text, another for another, mostly the text
    itself.
    """
    plain = all(c.isascii() and (c.isalnum() or c in "-_.") for c in text)
    if text and plain and text[0] != ".":
        name = text
    else:
        safe = (c if c.isascii() and (c.isalnum() or c in "-_") else "%%%x." % ord(c) for c in text)
        name = "~" + "".join(safe)
    return name if len(name) <= NAME_MAX else name[: NAME_MAX // 2] + "~" + digest(text)
