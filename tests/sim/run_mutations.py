"""Tries every mutation of `decide` against stories, seeds and pure tests; fails when one survives.

    python tests/sim/run_mutations.py [--seeds 150] [--jobs 2] [--only WORDS]
                                      [--no-stories | --both]

Each is made in a copy of the package in a temporary folder, and runs in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.sim.mutations import MUTATIONS, Mutation  # noqa: E402

PARTS = ("model", "decide", "plan", "testing")  # of the package: what a world needs
PATIENCE = 120.0  # seconds for one mutant; one that hangs is caught

TRIAL = """
import sys
sys.path[:0] = [sys.argv[1]]
from argosy.testing.sim import run_seed
import argosy.decide
assert argosy.decide.__file__.startswith(sys.argv[1]), argosy.decide.__file__
if sys.argv[3] == "1":
    from tests.stories.test_stories import STORIES, told
    for path in STORIES:
        try:
            same = told(path) == path.read_text(encoding="utf-8")
        except Exception as error:
            same = False
        if not same:
            print(f"story {path.stem}")
            if sys.argv[4] != "1":
                sys.exit()
            break
for seed in range(int(sys.argv[2])):
    try:
        wrong = run_seed(seed, fast=True).wrong
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    if wrong:
        print(f"seed {seed}: {wrong}")
        sys.exit()
import contextlib, glob, io, pytest
pure = glob.glob(sys.argv[1] + "/tests/decide/test_*.py")
with contextlib.redirect_stdout(io.StringIO()) as said:
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--rootdir", sys.argv[1], *pure])
if code:
    print("a pure test: " + said.getvalue().strip().rpartition("\\n")[2])
"""


def copy_package(folder: Path) -> None:
    """The parts of the package that a world needs, as they are now, into `folder`."""
    source = ROOT / "src" / "argosy"
    ignored = shutil.ignore_patterns("__pycache__")
    for part in PARTS:
        shutil.copytree(source / part, folder / "argosy" / part, ignore=ignored)
    for one in source.glob("*.py"):
        shutil.copy(one, folder / "argosy")
    for tests in ("stories", "decide"):
        shutil.copytree(ROOT / "tests" / tests, folder / "tests" / tests, ignore=ignored)
    (folder / "tests" / "decide" / "test_page.py").unlink()  # it reads a page of docs/


def mutate(mutation: Mutation, folder: Path) -> None:
    """Put the mistake into the package in `folder`."""
    module = folder / "argosy" / "decide" / f"{mutation.module}.py"
    text = module.read_text(encoding="utf-8")
    count = text.count(mutation.old)
    if count != 1:
        raise SystemExit(f"{mutation.module}: {mutation.name}: its words stand there {count} times")
    module.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")


def trial(
    mutation: Mutation | None, base: Path, *, seeds: int, stories: bool = True, both: bool = False
) -> tuple[str, ...]:
    """What caught the mutant, made from the package in `base`; None: the package as it is.

    `both`: seeds are tried also when a story has caught it.
    """
    with tempfile.TemporaryDirectory(prefix="argosy-mutant-") as name:
        shutil.copytree(base, name, dirs_exist_ok=True)
        if mutation is not None:
            mutate(mutation, Path(name))
        flags = ["1" if flag else "0" for flag in (stories, both)]
        argv = [sys.executable, "-c", TRIAL, name, str(seeds), *flags]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=name
            )
        except subprocess.TimeoutExpired:
            return ("it hangs",)
        lines = tuple(done.stdout.splitlines())
        return (*lines, done.stderr.strip().rpartition("\n")[2]) if done.returncode else lines


def tell(mutation: Mutation, lines: tuple[str, ...]) -> bool:
    """Print one line; whether it is as it should be."""
    word = "caught" if lines else "explained" if mutation.explained else "SURVIVED"
    why = "; ".join(lines) or mutation.explained
    print(f"{word:9} {mutation.module:8} {mutation.name}: {why[:160]}", flush=True)
    return bool(lines or mutation.explained)


def main(argv: list[str] | None = None) -> int:
    """The command line; 1 when a mutant survives that should not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="those whose name or module has these words")
    parser.add_argument("--no-stories", action="store_true")
    parser.add_argument("--both", action="store_true", help="seeds also after a story")
    asked = parser.parse_args(argv)
    chosen = [one for one in MUTATIONS if asked.only in f"{one.module} {one.name}"]
    with tempfile.TemporaryDirectory(prefix="argosy-mutants-") as name:
        base = Path(name)
        copy_package(base)

        def tried(mutation: Mutation | None) -> tuple[str, ...]:
            stories = not asked.no_stories
            return trial(mutation, base, seeds=asked.seeds, stories=stories, both=asked.both)

        wrong = tried(None)
        if wrong:
            print(f"without any mutation: {'; '.join(wrong)}")
            return 1
        with ThreadPoolExecutor(asked.jobs) as pool:
            tries = pool.map(tried, chosen)
            fine = [tell(one, lines) for one, lines in zip(chosen, tries, strict=True)]
    print(f"{len(fine)} mutations, {fine.count(False)} survived")
    return 1 if False in fine else 0


if __name__ == "__main__":
    sys.exit(main())
