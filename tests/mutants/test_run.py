"""One run of a GoogleTest program: what came of it."""
import dataclasses
import os
import re
import signal
import subprocess
import tempfile


@dataclasses.dataclass
class Outcome:
    what: str  # green, assertion, check, timeout, crash
    tests: int  # that ran
    output: str

    def first_failure(self):
        found = re.search(r"^\[  FAILED  \] (\S+?),?(?: |$)", self.output, re.MULTILINE)
        broken = re.search(r"Assertion `.*?' failed", self.output)
        return found.group(1) if found else broken.group(0)[:60] if broken else ""

    def tail(self):
        return "\n".join("    " + line for line in self.output.splitlines()[-30:])


def judge(code, output):
    if code == 0:
        return "green"
    if code == 1 and "[  FAILED  ]" in output:
        return "assertion"
    if code == -signal.SIGABRT and re.search(r"Assertion `.*' failed", output):
        return "check"
    return "crash"


def run(binary, mutant, programs=None):
    # A folder of its own and a short path, as sockets need it: a bug may leave anything behind.
    with tempfile.TemporaryDirectory(prefix="kv_mutant_") as folder, \
            tempfile.TemporaryFile() as printed:
        os.chmod(folder, 0o755)  # as /tmp is: some tests become another user
        environment = os.environ | {"TMPDIR": folder} | mutant.variables
        if programs is not None:
            environment["KV_PROGRAMS"] = str(programs)
        process = subprocess.Popen([str(binary), f"--gtest_filter={mutant.filter}"], cwd=folder,
                                   env=environment, stdout=printed, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        ended = True
        try:
            process.wait(timeout=mutant.seconds)
        except subprocess.TimeoutExpired:
            ended = False
        try:
            os.killpg(process.pid, signal.SIGKILL)  # the group of this run: what is left of it
        except ProcessLookupError:
            pass
        process.wait()
        printed.seek(0)
        output = printed.read().decode(errors="replace")
    ran = re.search(r"^\[==========\] (\d+) tests? from .* ran\.", output, re.MULTILINE)
    what = judge(process.returncode, output) if ended else "timeout"
    return Outcome(what, int(ran.group(1)) if ran else 0, output)
