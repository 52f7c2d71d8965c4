"""Play one scene: `python -I run.py FOLDER MODULE SCENE`; FOLDER has `agent` and `scenes`."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    getattr(importlib.import_module("scenes." + sys.argv[2]), sys.argv[3])()
