"""Runs every benchmark and prints one table; exits 1 when a budget's ratio failed.

    python benchmarks/run.py [--only WORD]... [--quick] [--no-ray] [--output FILE]

An absolute figure that is missed is said, and fails nothing: the machine may be busy. A ratio to a
peer of the same run fails once it is missed by more than its margin (`measure.Ratio`).
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import balancing
import commands
import kubernetes
import launching
import logs
import noticing
import peers
import resting
import ssh_hosts
import syncing
import thinking
from measure import Line, Options, Row, load, parsed, say, table

MODULES = (launching, noticing, resting, commands, thinking, balancing, logs, syncing, ssh_hosts,
           kubernetes)  # fmt: skip


def lines(words: Sequence[str]) -> list[Line]:
    """All lines, or those in whose name (`launching.five`) one of the words stands."""
    every = [line for module in MODULES for line in module.LINES]
    return [line for line in every if not words or any(word in _name(line) for word in words)]


def measured(line: Line, options: Options) -> tuple[list[Row], str]:
    """The rows of a line, and what went wrong: one that breaks does not end the others."""
    say(f"{datetime.now(UTC):%H:%M:%S} {_name(line)} (load {load()}) ...")
    rows: list[Row] = []
    try:
        for row in line(options):
            rows.append(row)
            say(f"    {row.what}: {row.cells()[1]} ({row.cells()[2]}): {row.verdict}")
    except Exception as error:  # told at the end, with the exit code
        traceback.print_exc()
        return rows, f"{_name(line)}: {type(error).__name__}: {error}"
    return rows, ""


def main(words: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table there too")
    asked = parsed(parser, words)
    options = Options(asked.quick, not asked.no_ray)
    peers.ensure(ray=options.ray)
    began = load()
    rows: list[Row] = []
    broken: list[str] = []
    for line in lines(asked.only):
        found, problem = measured(line, options)
        rows += found
        broken += [problem] if problem else []
    text = f"{heading(began)}\n\n{table(rows)}\n"
    print(text)
    if asked.output:
        asked.output.write_text(text, encoding="utf-8")
    return verdict(rows, broken)


def heading(began: str) -> str:
    """The machine and the day."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux "
        f"{platform.release().split('-')[0]}, Python {platform.python_version()}; "
        f"load average {began} at the start, {load()} at the end"
    )


def verdict(rows: Sequence[Row], broken: Sequence[str]) -> int:
    """The exit code, explained."""
    for problem in broken:
        say(f"broken: {problem}")
    for row in rows:
        if row.failed:
            assert row.budget.ratio is not None
            wanted = row.budget.ratio
            say(
                f"failed: {row.what}: {row.ratio:.2g}x {wanted.to},"
                f" budget {wanted.at_most:g}x with a margin of {wanted.margin:g}"
            )
    return 1 if broken or any(row.failed for row in rows) else 0


def _name(line: Line) -> str:
    return f"{line.__module__}.{line.__name__}"


if __name__ == "__main__":
    sys.exit(main())
