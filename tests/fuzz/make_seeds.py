#!/usr/bin/env python3
"""Golden messages as files of bytes: make_seeds.py FOLDER FILE.hex..."""
import pathlib
import sys


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:]:
        source = pathlib.Path(name)
        lines = source.read_text().splitlines()
        text = "".join(line for line in lines if not line.startswith("#"))
        (folder / source.stem).write_bytes(bytes.fromhex(text))
    (folder / "made").write_text("")


main()
