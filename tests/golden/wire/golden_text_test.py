#!/usr/bin/env python3
"""What the golden bytes say, read by flatc (none of our code): golden_text_test.py FLATC ROOT.

Compares with messages.json. KV_UPDATE_GOLDEN=1 rewrites it; the commit then says why.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def read_by_flatc(flatc, schemas, golden, folder):
    lines = golden.read_text().splitlines()
    text = "".join(line for line in lines if not line.startswith("#"))
    binary = pathlib.Path(folder) / golden.stem
    binary.write_bytes(bytes.fromhex(text))
    schema = schemas / (golden.stem.split("_")[0] + ".fbs")
    subprocess.run(
        [flatc, "--json", "--raw-binary", "--strict-json", "--defaults-json", "-I", schemas,
         "-o", folder, schema, "--", binary], check=True)
    return json.loads((pathlib.Path(folder) / (golden.stem + ".json")).read_text())


def main():
    flatc, root = sys.argv[1], pathlib.Path(sys.argv[2])
    goldens = root / "tests/golden/wire"
    with tempfile.TemporaryDirectory() as folder:
        got = {golden.stem: read_by_flatc(flatc, root / "schemas", golden, folder)
               for golden in sorted(goldens.glob("*.hex"))}
    recorded = goldens / "messages.json"
    if os.environ.get("KV_UPDATE_GOLDEN"):
        text = ",\n".join(f"  {json.dumps(name)}: {json.dumps(got[name])}" for name in sorted(got))
        recorded.write_text("{\n" + text + "\n}\n")
    expected = json.loads(recorded.read_text())
    wrong = [name for name in sorted(expected.keys() | got.keys())
             if expected.get(name) != got.get(name)]
    for name in wrong:
        print(f"{name}:\n  recorded {json.dumps(expected.get(name))}\n"
              f"  bytes    {json.dumps(got.get(name))}")
    print(f"{len(got)} messages, {len(wrong)} differ")
    return 1 if wrong or not got else 0


sys.exit(main())
