"""Writes lines of 100 bytes to standard output, then says how long that took.

python writer.py LINES FILE
"""

import os
import sys
import time

LINE = b"x" * 99 + b"\n"
EACH = 655


def main():
    """Write blocks of nearly 64 KiB, as a program with a buffer does."""
    lines, file = int(sys.argv[1]), sys.argv[2]
    block = LINE * EACH
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    for _ in range(lines // EACH):
        os.write(1, block)
    took = time.clock_gettime(time.CLOCK_MONOTONIC) - began
    with open(file + ".part", "w") as out:
        out.write(str(took))
    os.rename(file + ".part", file)


main()
