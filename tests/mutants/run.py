#!/usr/bin/env python3
"""Planted bugs, each of which a named test must notice: run.py BUILD [--part NAME] [--only NAME].

BUILD is a release build with its tests. Every *.toml here is a part: a list of [[mutant]] with
  name      of the bug                 breaks   what it breaks, one sentence
  file      that is changed            old, new the exact text in it (once), and the text instead
  test      program of the test        filter   its --gtest_filter
and, where needed,
  program   the changed program that the test runs (the test itself is as it was)
  ends      how the test notices: "assertion" (default), "check" (a KV_CHECK stops the process) or
            "timeout" (nothing comes back within `seconds`)
  seconds   time limit of the test (30)
  variables of the test's environment

The same tests first run without any bug, and one bug a part is compiled without its change: both
must be green. Exits 1 when a bug goes unnoticed, 2 when an entry is wrong.
"""
import argparse
import concurrent.futures
import pathlib
import sys
import time

import build_tree
import entries
import test_run

HERE = pathlib.Path(__file__).resolve().parent


class Report:
    """Prints one line for each bug, in the order in which they end."""

    def __init__(self, mutants):
        self.width = max(len(m.name) for m in mutants)
        self.problems = []

    def line(self, mutant, what, told, seconds):
        print(f"{mutant.name:{self.width}}  {what:10} {seconds:5.1f} s  {told}", flush=True)

    def problem(self, mutant, text):
        self.problems.append(f"{mutant.name}: {text}")


def check_unmutated(mutants, tree, report):
    """The tests as they are; True when all are green."""
    distinct = {m.run_key(): m for m in mutants}
    for mutant in distinct.values():
        outcome = test_run.run(tree.binary(mutant.test), mutant)
        if outcome.what != "green" or outcome.tests == 0:
            report.problem(mutant, f"without the bug, {mutant.test} {mutant.filter} is "
                           f"{outcome.what} ({outcome.tests} tests)\n{outcome.tail()}")
    return not report.problems


def try_mutant(mutant, tree, changed, report):
    start = time.monotonic()
    try:
        with tree.variant(mutant, changed) as variant:
            built = time.monotonic()
            outcome = test_run.run(variant.test, mutant, variant.programs)
    except build_tree.BuildError as error:
        report.problem(mutant, str(error))
        return
    wanted = mutant.ends if changed else "green"
    told = f"build {built - start:.1f} s; {mutant.test} {outcome.first_failure()}"
    if outcome.what == wanted:
        report.line(mutant, wanted if changed else "(twin)", told, time.monotonic() - start)
        return
    verdict = "no test notices it" if outcome.what == "green" else f"ends by {outcome.what}"
    report.line(mutant, "PROBLEM", verdict, time.monotonic() - start)
    report.problem(mutant, f"{verdict}, not by {wanted}: {mutant.test} "
                   f"--gtest_filter={mutant.filter}\n  {mutant.breaks}\n{outcome.tail()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, default=HERE, help="of the parts")
    parser.add_argument("--part", help="only this file (without .toml)")
    parser.add_argument("--only", help="only the bugs whose name contains this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="only that the entries fit the tree")
    parser.add_argument("--twins", action="store_true",
                        help="every bug is compiled without its change: the way there is sound")
    options = parser.parse_args()
    started = time.monotonic()
    tree = build_tree.BuildTree(options.build.resolve())
    try:
        mutants = entries.load(options.folder, tree.root, options.part)
    except entries.EntryError as error:
        print(error, file=sys.stderr)
        return 2
    mutants = [m for m in mutants if options.only is None or options.only in m.name]
    if not mutants:
        print("no such bug", file=sys.stderr)
        return 2
    if options.check:
        print(f"{len(mutants)} entries fit the tree")
        return 0
    report = Report(mutants)
    if check_unmutated(mutants, tree, report):
        first = {m.part: m for m in reversed(mutants)}
        twins = mutants if options.twins else list(first.values())
        work = [(m, False) for m in twins]
        work += [] if options.twins else [(m, True) for m in mutants]
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for done in [pool.submit(try_mutant, m, tree, changed, report) for m, changed in work]:
                done.result()
    for problem in report.problems:
        print(f"\n{problem}")
    print(f"\n{len(mutants)} planted bugs, {len(report.problems)} problems, "
          f"{time.monotonic() - started:.0f} s")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
