"""`ARGOSY_LONG=1 pytest tests/sim` also tries every mutation of `decide`: CI's longer part."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("ARGOSY_LONG") == "1" else ["test_mutations_long.py"]
