"""How the Python of a host, or of an image, is found by a shell there."""

from __future__ import annotations

from typing import Final

PYTHONS: Final = "python3 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python"

# Writes its version, and the mark of the code that it runs (`lean.mark`); any Python reads this.
_LOOK: Final = """import sys
v = sys.version_info
sys.stdout.write("%d.%d " % v[:2])
if v < (3, 8): sys.exit(1)
from _frozen_importlib_external import MAGIC_NUMBER
sys.stdout.write(MAGIC_NUMBER.hex())"""


def find(names: str = PYTHONS) -> str:
    """Lines for `sh`: they set `p` to the first of these that is Python >= 3.8, and `m` to its
    mark; `p` is empty when there is none, and `old` is then the version of the last that is there.
    """
    return f"""p= m= old=
for n in {names}; do
  c=$(command -v "$n" 2>/dev/null) || continue
  v=$("$c" -I -S -c '{_LOOK}' 2>/dev/null) && p=$c && m=${{v#* }} && break
  old=${{v%% *}}
done
"""
