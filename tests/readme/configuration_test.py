#!/usr/bin/env python3
"""Holds the table of README.md against the program: configuration_test.py README CACHESVC.

Keys, their order, types, defaults and meanings are those of `cachesvc config show --json`."""
import json
import pathlib
import re
import subprocess
import sys


def told(readme):
    section = readme.split("\n## Configuration\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.*?) \| (.*?) \| (.*) \|$", section, re.MULTILINE)
    return {key: {"type": kind, "default": default, "help": meaning}
            for key, kind, default, meaning in rows}


def shown(program):
    output = subprocess.run([program, "config", "show", "--json"], check=True, text=True,
                            capture_output=True, env={"CACHESVC_DIR": "/tmp/unused"}).stdout
    return json.loads(output)


def main():
    rows = told(pathlib.Path(sys.argv[1]).read_text())
    keys = shown(sys.argv[2])
    problems = []
    if list(rows) != list(keys):
        problems.append(f"keys of the table: {list(rows)}\nkeys of the program: {list(keys)}")
    for key in keys.keys() & rows.keys():
        row, fact = rows[key], keys[key]
        if row["type"] != fact["type"]:
            problems.append(f"{key}: type {row['type']}, not {fact['type']}")
        if row["default"] != fact["default"].strip("<>"):
            problems.append(f"{key}: default {row['default']}, not {fact['default']}")
        # Choices follow in brackets.
        if not re.fullmatch(re.escape(fact["help"]) + r"( \([^)]*\))?", row["help"]):
            problems.append(f"{key}: meaning {row['help']!r}, not {fact['help']!r}")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
