"""What a group of tasks ends with."""

from __future__ import annotations

import asyncio


def the_error(errors: ExceptionGroup[Exception]) -> BaseException:
    """What to raise for the errors of an `asyncio.TaskGroup` (`except*` of Python 3.11.2 would keep
    the group around it): the first, but CancelledError where whoever had the group was cancelled
    meanwhile. Until Python 3.13 a TaskGroup that has errors drops that, and who was to end would go
    on for ever (https://github.com/python/cpython/issues/116720).
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return asyncio.CancelledError()
    return errors.exceptions[0]
