#!/usr/bin/env python3
"""table.py itself: a complete tree passes, and each kind of gap in it is found."""
import contextlib
import io
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import table  # noqa: E402

README = """
| id | about | shown by |
|---|---|---|
| CRASH-01 | one | `a/a_test.cc` Some.Thing |
| LEAK-02 | two | waits for: the rest |

| status | answered by | why |
|---|---|---|
| STALE | `stale` | so |
"""
TREE = {
    "tests/conformance/README.md": README,
    "tests/conformance/ids.txt": "CRASH-01\nLEAK-02\n",
    "tests/conformance/statuses.txt": "STALE\n",
    "tests/a/a_test.cc": "// SCENARIOS CRASH-01 and COR-05: why\nTEST(Some, Thing) {}\n",
    "tests/a/b_test.cc": "TEST_F(Other, Thing) {}\n",
    "allocator/base/result.h": 'kNames[kErrorCodeCount] = {\n"ok", "stale"};\n',
}


def said(changes, update=False):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for file, text in {**TREE, **changes}.items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = table.main(root, update)
        return code, out.getvalue(), (root / "tests/conformance/README.md").read_text()


def readme(old, new):
    assert old in README
    return {"tests/conformance/README.md": README.replace(old, new)}


def comment(text):
    return {"tests/a/b_test.cc": f"{text}\nTEST_F(Other, Thing) {{}}\n"}


GAPS = [
    ("CRASH-01: no row", readme("| CRASH-01 | one | `a/a_test.cc` Some.Thing |\n", "")),
    ("LEAK-02: more than one row",
     readme("| LEAK-02 |", "| LEAK-02 | x | waits for: y |\n| LEAK-02 |")),
    ("DEAD-09: not in ids.txt",
     readme("| LEAK-02 |", "| DEAD-09 | x | waits for: y |\n| LEAK-02 |")),
    ("a/a_test.cc has no test Some.Other", readme("Some.Thing", "Some.Other")),
    ("a/none_test.cc has no test Some.Thing", readme("a/a_test.cc", "a/none_test.cc")),
    ("a/b_test.cc Other.Thing has no comment",
     readme("Some.Thing |", "Some.Thing<br>`a/b_test.cc` Other.Thing |")),
    ("CRASH-01: its row lacks a/a_test.cc Some.Thing",
     readme("`a/a_test.cc` Some.Thing", "waits for: all")),
    ("LEAK-02: names neither a test", readme("waits for: the rest", "soon")),
    ("LEAK-02: its row lacks a/b_test.cc Other.Thing", comment("// SCENARIOS LEAK-02")),
    ("REC-77: a test claims it", comment("// SCENARIOS LEAK-02, REC-77")),
    ("no test stands below", {"tests/a/c_test.cc": "// SCENARIOS LEAK-02\n"}),
    ("STALE: no row among the statuses", readme("| STALE | `stale` | so |\n", "")),
    ("GONE: not in statuses.txt", readme("| STALE |", "| GONE | `ok` | x |\n| STALE |")),
    ("STALE: stolen is no error", readme("`stale`", "`stolen`")),
    ("STALE: no error answers it", readme("`stale`", "stale")),
]


def main():
    failures = []
    code, out, _ = said({})
    if code != 0:
        failures.append(f"a complete tree is refused: {out}")
    for expected, changes in GAPS:
        code, out, _ = said(changes)
        if code != 1 or expected not in out:
            failures.append(f"not found: {expected}; said: {out}")
    code, out, text = said(comment("# SCENARIOS LEAK-02"), update=True)
    if code != 0 or "| LEAK-02 | two | `a/b_test.cc` Other.Thing |" not in text:
        failures.append(f"--update did not complete the table: {out} {text}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
