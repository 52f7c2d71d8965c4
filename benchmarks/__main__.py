"""`python -m benchmarks` is `python benchmarks/run.py`."""

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
runpy.run_path(str(Path(__file__).resolve().parent / "run.py"), run_name="__main__")
