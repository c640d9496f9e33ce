#!/usr/bin/env python3
"""What the scripts say without doing anything: scripts_test.py ROOT. --help is exit code 0 and the
usage on stdout; what they do not know, or lack, is exit code 2 and the usage on stderr.

They run as copies in an empty folder: one that went to work would fail there."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

SCRIPTS = ("tools/test", "tools/demo", "tools/dev/build", "tools/dev/format", "tools/dev/tidy")
MISTAKES = (("tools/test", "-R"), ("tools/test", "--surprise"), ("tools/demo", "--surprise"),
            ("tools/dev/build",), ("tools/dev/build", "--surprise"),
            ("tools/dev/format", "--surprise"), ("tools/dev/tidy", "--surprise"))


def main():
    root = pathlib.Path(sys.argv[1])
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for script in SCRIPTS:
            (folder / script).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / script, folder / script)
        calls = [((script, "--help"), 0) for script in SCRIPTS] + [(call, 2) for call in MISTAKES]
        for call, code in calls:
            result = subprocess.run([folder / call[0], *call[1:]], capture_output=True, text=True,
                                    stdin=subprocess.DEVNULL, timeout=60)
            text = result.stdout if code == 0 else result.stderr
            if result.returncode != code or f"usage: {call[0]}" not in text:
                problems.append(f"{' '.join(call)}: exit code {result.returncode}, {text!r}")
        left = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
        if left != set(SCRIPTS):
            problems.append(f"files were made: {left - set(SCRIPTS)}")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
