"""Write the tables of `docs/format.md` from the file model. Run: `python docs/make_format.py`."""

from __future__ import annotations

import re
from pathlib import Path

from argosy.spec.keys import model
from argosy.spec.keys.shapes import Key, Record

PAGE = Path(__file__).parent / "format.md"
TABLES = {
    "header": model.HEADER,
    "task": model.TASK,
    "resources": model.RESOURCES,
    "ready": model.READY,
    "restart": model.RESTART,
    "service": model.SERVICE,
    "readiness_probe": model.PROBE,
    "job_recovery": model.RECOVERY,
    "file_mounts": model.STORAGE,
    "volumes": model.VOLUME,
    "volume_file": model.VOLUME_FILE,
    "volume_config": model.VOLUME_CONFIG,
    "workdir": model.GIT,
}
_PART = re.compile(r"(<!-- keys: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """The page with each part between `<!-- keys: NAME -->` and `<!-- end -->` made anew."""
    return _PART.sub(lambda found: found[1] + table(TABLES[found[2]]) + found[3], page)


def table(record: Record) -> str:
    """The keys of a record as a Markdown table."""
    rows = "".join(_row(key) for key in record.keys)
    return f"| key | meaning | default |\n|---|---|---|\n{rows}"


def _row(key: Key) -> str:
    plus = "**+** " if key.ours else ""
    cells = (f"{plus}`{key.name}`", key.doc, key.default)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
