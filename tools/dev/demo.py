#!/usr/bin/env python3
"""The demonstration behind tools/demo: demo.py BUILD_FOLDER [--json].

Starts a service in a directory of its own, generates with the reference runner and prints where the
KV of each prompt came from. Exit 1 when a token differs from the golden ones, or a warm logit
differs from its cold one in any bit, or a run was not served from the tier that it must be."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "plugins/runner/models/stories260K"
BLOCK_TOKENS = 16
PROMPT_TOKENS = 150   # a golden prompt and its first generated tokens
NEW_TOKENS = 48
TIERS = ("device", "host", "disk", "remote")


class Failure(Exception):
    pass


class Service:
    """One `cachesvc serve` on the directory; stopping it is the graceful stop, which flushes."""

    def __init__(self, programs, directory):
        self.directory = directory
        self.log = open(directory.parent / "service.log", "ab")
        self.process = subprocess.Popen(
            [programs / "cachesvc", "serve", "--dir", directory], stdout=subprocess.PIPE,
            stderr=self.log, stdin=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("ready"):
            self.process.wait()
            raise Failure("the service did not start: " +
                          (directory.parent / "service.log").read_text()[-2000:])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise Failure("the service did not stop within 30 s") from None
        self.process.stdout.close()
        self.log.close()


def program(arguments):
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True,
                            timeout=120, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        raise Failure(f"{pathlib.Path(arguments[0]).name} failed: {result.stderr.strip()}")
    return json.loads(result.stdout)


class Demo:
    def __init__(self, programs, directory):
        self.programs = programs
        self.directory = directory
        self.rows = []
        self.failures = []

    def generate(self, name, tokens, cold=False):
        logits = self.directory.parent / "logits.bin"
        row = program([self.programs / "cachesvc-runner", "generate", "--dir", self.directory,
                       "--model", MODEL, "--prompt-tokens", ",".join(map(str, tokens)),
                       "--max-tokens", NEW_TOKENS, "--logits", logits, "--json"] +
                      (["--skip-read"] if cold else []))
        row["name"] = name
        row["logits"] = logits.read_bytes()
        logits.unlink()
        self.rows.append(row)
        hits = row["hit_tokens"]
        self.expect(sum(hits.values()) + row["computed_tokens"] == row["prompt_tokens"],
                    f"{name}: hits and computed tokens do not add up to the prompt")
        return row

    def control(self, *arguments):
        return program([self.programs / "cachectl", "--dir", self.directory, *arguments, "--json"])

    def wait_until_recovered(self):
        """The service serves while it reads its disk index; what is not read yet is a miss."""
        for _ in range(600):
            if not self.control("status")["recovering"]:
                return
        self.failures.append("the disk index was not read in time")

    def expect(self, condition, message):
        if not condition:
            self.failures.append(message)

    def expect_hits(self, row, tier, tokens):
        for name in TIERS:
            wanted = tokens if name == tier else 0
            found = row["hit_tokens"][name]
            self.expect(found == wanted, f"{row['name']}: {found} {name} hit tokens, not {wanted}")

    def expect_equal(self, row, cold):
        # Of every generated position, each the whole vocabulary in fp32.
        vocabulary = json.loads((MODEL / "config.json").read_text())["vocab_size"]
        self.expect(len(cold["logits"]) == 4 * vocabulary * len(cold["generated_tokens"]),
                    f"{cold['name']}: not one row of logits for each generated token")
        self.expect(row["logits"] == cold["logits"],
                    f"{row['name']}: logits differ from the cold run's")
        self.expect(row["generated_tokens"] == cold["generated_tokens"],
                    f"{row['name']}: tokens differ from the cold run's")

    def run(self):
        case = json.loads((MODEL / "golden_greedy.json").read_text())["cases"][0]
        sequence = case["prompt_tokens"] + case["generated_tokens"]
        prompt = sequence[:PROMPT_TOKENS]
        golden = sequence[PROMPT_TOKENS:PROMPT_TOKENS + NEW_TOKENS]
        # The same beginning, then the ending of another golden story.
        shared = 96
        ending = json.loads((MODEL / "golden_greedy.json").read_text())["cases"][2]
        other = prompt[:shared] + ending["prompt_tokens"][1:] + ending["generated_tokens"][:30]
        hit = BLOCK_TOKENS * ((len(prompt) - 1) // BLOCK_TOKENS)

        service = Service(self.programs, self.directory)
        try:
            cold = self.generate("cold", prompt)
            self.expect_hits(cold, None, 0)
            warm = self.generate("warm", prompt)
            self.expect_hits(warm, "device", hit)
            branch = self.generate("shared prefix, other ending", other)
            self.expect_hits(branch, "device", BLOCK_TOKENS * (shared // BLOCK_TOKENS))
            branch_cold = self.generate("  its own cold run", other, cold=True)
            self.expect_hits(branch_cold, None, 0)
            self.control("demote", "--tier", "device")
            from_host = self.generate("device tier demoted and emptied", prompt)
            self.expect_hits(from_host, "host", hit)
            durable = self.control("flush")["durable_blocks"]
            self.expect(durable > hit // BLOCK_TOKENS, f"only {durable} blocks are durable")
            service.stop()
            service = Service(self.programs, self.directory)
            self.wait_until_recovered()
            from_disk = self.generate("service restarted", prompt)
            self.expect_hits(from_disk, "disk", hit)
        finally:
            service.stop()

        for row in (cold, warm, from_host, from_disk):
            self.expect(row["generated_tokens"] == golden,
                        f"{row['name']}: tokens differ from the golden ones")
        for row in (warm, from_host, from_disk):
            self.expect_equal(row, cold)
        self.expect_equal(branch, branch_cold)

    def table(self):
        lines = [f"{'run':<32} {'prompt':>6} {'device':>6} {'host':>6} {'disk':>6} "
                 f"{'computed':>8} {'first token':>12} {'tokens/s':>9}"]
        for row in self.rows:
            hits = row["hit_tokens"]
            lines.append(
                f"{row['name']:<32} {row['prompt_tokens']:>6} {hits['device']:>6} "
                f"{hits['host']:>6} {hits['disk']:>6} {row['computed_tokens']:>8} "
                f"{row['ttft_ms']:>9.2f} ms "
                f"{row['tokens_per_s']:>9.0f}")
        for title, name in (("text", "cold"), ("other ending", "shared prefix, other ending")):
            text = next(r["text"] for r in self.rows if r["name"] == name)
            lines.append(f"\n{title}: … {text.strip()} …")
        return "\n".join(lines)


def main():
    programs = pathlib.Path(sys.argv[1]).resolve() / "bin"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cachesvc-demo."))
    directory = folder / "dir"
    directory.mkdir()
    demo = Demo(programs, directory)
    try:
        demo.run()
    except (Failure, subprocess.TimeoutExpired, OSError, KeyError) as error:
        demo.failures.append(str(error) or repr(error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if "--json" in sys.argv[2:]:
        rows = [{k: v for k, v in row.items() if k != "logits"} for row in demo.rows]
        print(json.dumps({"rows": rows, "failures": demo.failures}, indent=1))
    elif demo.rows:
        print(demo.table())
    if demo.failures:
        print("\n".join(f"FAILED: {failure}" for failure in demo.failures), file=sys.stderr)
        sys.exit(1)
    if "--json" not in sys.argv[2:]:
        print("\nok: tokens equal the golden ones; warm logits equal their cold run's in every bit")


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
