#!/usr/bin/env python3
"""cachebench as a program: every row, its arithmetic, exit codes. No figure is judged."""

import json
import subprocess
import sys

ROWS = {"match_8192_tokens", "match_200_nodes", "cold_8192_tokens", "evict_64_blocks",
        "metadata_long_nodes", "metadata_one_block_nodes"}
FIELDS = ["name", "unit", "value", "limit_name", "limit", "ratio", "bar", "ok"]
SMALL = ["core", "--blocks", "8192", "--rounds", "5"]


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def main(program):
    done = run(program, *SMALL, "--json")
    whole = json.loads(done.stdout)
    rows = whole["rows"]
    assert {row["name"] for row in rows} == ROWS and len(rows) == len(ROWS), rows
    for row in rows:
        assert list(row) == FIELDS, row
        assert row["value"] > 0 and row["limit"] > 0 and row["ratio"] > 0 and row["bar"] > 0, row
        assert row["ok"] == (row["ratio"] <= row["bar"]), row
        if row["unit"] != "ns":  # of times it is the median of pairs
            assert abs(row["ratio"] - row["value"] / row["limit"]) < 1e-9, row
    assert done.returncode == (0 if all(row["ok"] for row in rows) else 3), done.returncode
    assert whole["machine"]["processors"] > 0 and whole["machine"]["processor"], whole["machine"]

    table = run(program, *SMALL, "--only", "match_200_nodes")
    lines = table.stdout.splitlines()
    assert lines[0].split()[0] == "name" and lines[1].startswith("match_200_nodes"), lines
    assert lines[2] == "", lines

    for wrong in (["core", "--only", "no_such_row"], ["core", "--blocks", "1"], ["count", "x"], []):
        done = run(program, *wrong)
        assert done.returncode == 2 and done.stderr.startswith("error: "), (wrong, done)
        assert done.stderr.count("\n") == 1 and done.stdout == "", (wrong, done)
    assert run(program, "--help").returncode == 0
    done = run(program, "count", "miss", "--operations", "10", "--blocks", "8192")
    assert done.returncode == 0 and done.stdout == done.stderr == "", done


if __name__ == "__main__":
    main(sys.argv[1])
