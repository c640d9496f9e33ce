#!/usr/bin/env python3
"""Instructions of the core's hot paths, as callgrind counts them: the same on every machine of this
instruction set, whatever else runs. The hash function is OpenSSL's and is left out."""

import os
import re
import subprocess
import sys
import tempfile

HASH = re.compile(r"SHA256|sha256|next_block_key")


def lines_of(callgrind_out):
    done = subprocess.run(["callgrind_annotate", "--auto=no", "--threshold=100", callgrind_out],
                          capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def instructions(program, work, operations, blocks):
    """A single operation's, without hashing."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        subprocess.run(["valgrind", "--tool=callgrind", "--instr-atstart=no",
                        f"--callgrind-out-file={out}", program, "count", work,
                        "--operations", str(operations), "--blocks", str(blocks)],
                       capture_output=True, check=True)
        total = hashing = 0
        for line in lines_of(out):
            number = re.match(r"\s*([\d,]+) \(\s*[\d.]+%\)  (.*)", line)
            if not number:
                continue
            count = int(number.group(1).replace(",", ""))
            if number.group(2).startswith("PROGRAM TOTALS"):
                total = count
            elif HASH.search(number.group(2)):
                hashing += count
    assert total > operations, f"callgrind counted {total} instructions of {work}"
    return (total - hashing) / operations


def main(program):
    failures = []

    def gate(name, value, bar):
        print(f"{name}: {value:.1f}, at most {bar}")
        if value > bar:
            failures.append(name)

    gate("instructions of a miss at the first block",
         instructions(program, "miss", 1_000, 65_536), 250)
    few = instructions(program, "evict", 5_000, 10_000)
    many = instructions(program, "evict", 5_000, 1_000_000)
    gate("instructions of an eviction from 10,000 blocks", few, 1_000)
    gate("its growth to 1,000,000 blocks", many / few, 1.3)
    # The goal is 150.
    gate("instructions of a sequence's decode step",
         instructions(program, "decode", 16_384, 8_192), 600)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
