"""What the launcher's process runs. It and the three modules below it import as little as can be,
not even `typing`: every page of it is copied, or paid for, with every program that is started.
"""

from __future__ import annotations

from .net import enter
from .processes import launcher


def launch() -> None:
    """The launcher's life."""
    launcher.run(enter.join, enter.enter)
