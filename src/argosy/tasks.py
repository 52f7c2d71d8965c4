"""Several things at once, until one of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_one_ends(*works: Coroutine[Any, Any, None]) -> None:
    """Do all until the first of them ends; the others are cancelled, and awaited. Raises what it
    raised.

    Not an `asyncio.TaskGroup`: one that is coming to its end with an error forgets that whoever has
    it was cancelled (until Python 3.13, https://github.com/python/cpython/issues/116720), and who
    was to end would go on for ever.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
