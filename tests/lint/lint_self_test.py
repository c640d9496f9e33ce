#!/usr/bin/env python3
"""Each lint rule refuses a small tree that breaks it, and accepts it once mended."""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
EDGES = (HERE / "../../tools/dev/cmake/kv_targets.cmake").resolve().read_text()

# rule -> (file, bad content, good content)
CASES = {
    "includes": ("allocator/a.h", '#include "cachesvc/core/engine.h"\n',
                 '#include "allocator/base/check.h"\n'),
    "sizes": ("allocator/a.h", "// " + "x" * 98 + "\n", "// short\n"),
    "banned": ("allocator/a.cc", "#include <mutex>\n", "#include <vector>\n"),
    "twins": ("allocator/a.h", "int f();\n", None),
    "files": ("stray.txt", "x\n", None),
}


def run(rule, root):
    return subprocess.run([sys.executable, HERE / "lint.py", rule, root],
                          capture_output=True, text=True)


def main():
    for rule, (name, bad, good) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "tools/dev/cmake").mkdir(parents=True)
            (root / "tools/dev/cmake/kv_targets.cmake").write_text(EDGES)
            (root / "cachesvc/wire").mkdir(parents=True)
            (root / "cachesvc/wire/b.cc").write_text('#include "allocator/a.h"\n')
            for top in ("tools", "allocator", "cachesvc", "cachesvc/wire"):
                (root / top).mkdir(exist_ok=True)
                (root / top / "README.md").write_text("x\n")
            path = root / name
            path.write_text(bad)
            result = run(rule, root)
            assert result.returncode == 1 and name in result.stdout, (rule, result.stdout)
            if good is None:
                path.unlink()
            else:
                path.write_text(good)
            result = run(rule, root)
            assert result.returncode == 0, (rule, result.stdout)
    print(f"{len(CASES)} rules refuse what they must")


if __name__ == "__main__":
    main()
