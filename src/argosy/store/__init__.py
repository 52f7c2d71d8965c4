"""Rows and events: what is kept of groups, on disk, over every restart of the server.

`Store` is the door. Importing this package costs nothing: the name is loaded when it is asked for,
since it brings SQLAlchemy, which only the server pays for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argosy.store.store import Store

__all__ = ["Store"]


def __getattr__(name: str) -> Any:
    if name == "Store":
        from argosy.store.store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
