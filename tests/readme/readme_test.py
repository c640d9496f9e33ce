#!/usr/bin/env python3
"""Runs the commands of the tree's README.md: readme_test.py ROOT BUILD_FOLDER.

Takes every fenced block marked `sh`, in order, as one script in an empty environment, leaves out
tools/test (it runs this very test) and lets build/release stand for the build that is tested."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile


def commands(readme):
    blocks = re.findall(r"^```sh\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert blocks, "README.md has no block of commands"
    lines = [line for block in blocks for line in block.splitlines()]
    left_out = re.compile(r"\s*(tools/test\b|git clone\b|cd cachesvc\b)")
    kept = [line for line in lines if not left_out.match(line)]
    assert len(kept) >= 5, "README.md lost its commands"
    return "\n".join(kept)


def check_text(readme):
    """No hole that somebody meant to fill."""
    holes = re.findall(r"@[A-Z]+@", readme)
    assert not holes, f"README.md has holes: {holes}"


def main():
    root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    readme = (root / "README.md").read_text()
    check_text(readme)
    script = commands(readme)
    script = re.sub(r"(\$PWD/)?build/release", str(build), script)
    script = script.replace("tools/demo", f"python3 tools/dev/demo.py {build}")
    # A process group of its own: a service left running by the README ends with the test.
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(
            ["bash", "-euxo", "pipefail", "-c", script], cwd=root, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"})
        try:
            output, _ = process.communicate(timeout=120)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    print(output)
    sys.exit(1 if process.returncode != 0 else 0)


if __name__ == "__main__":
    main()
