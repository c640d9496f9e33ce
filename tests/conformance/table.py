#!/usr/bin/env python3
"""The table of README.md against the tests that there are: table.py ROOT [--update].

A test says which scenario it shows in a comment above it: `// SCENARIOS CRASH-01, LEAK-06: why`.
Checked: every id of ids.txt has one row and no other id has one; a row names the tests that have
the comment, no others, or says what it waits for; every status of statuses.txt is answered by
errors that exist. --update writes the tests into the rows.
"""
import pathlib
import re
import sys

FAMILIES = ("CRASH", "DEAD", "LEAK", "REC", "CFG", "SEC")
ID = r"[A-Z]+-\d+"
COMMENT = re.compile(rf"(?://|#) SCENARIOS ({ID}(?:(?:, | and ){ID})*)")
TEST = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)|^\s*def (test_\w+)\(", re.MULTILINE)
ROW = re.compile(rf"^\| ({ID}) \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.(?:cc|py))` ([\w.]+)")
WAITS = re.compile(r"waits for: [^<]+")
STATUS = re.compile(r"^\| ([A-Z_]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ERROR_NAMES = re.compile(r"kNames\[kErrorCodeCount\] = \{([^}]*)\}")


def tests_in(text):
    """(offset, name) of every test of a file."""
    found = []
    for match in TEST.finditer(text):
        suite, name, function = match.groups()
        found.append((match.start(), function or f"{suite}.{name}"))
    return found


def read_tests(root):
    """{id: {(file, test)}} by comment, and {(file, test)} of all tests."""
    commented, known, problems = {}, set(), []
    for path in sorted((root / "tests").rglob("*")):
        if path.suffix not in (".cc", ".py"):
            continue
        file = path.relative_to(root / "tests").as_posix()
        if file in ("conformance/table.py", "conformance/table_self_test.py"):
            continue
        text = path.read_text(errors="replace")
        tests = tests_in(text)
        known.update((file, name) for _, name in tests)
        for match in COMMENT.finditer(text):
            below = [name for start, name in tests if start > match.start()]
            if not below:
                problems.append(f"{file}: no test stands below '{match.group(0)}'")
                continue
            for scenario in re.findall(ID, match.group(1)):
                if scenario.split("-")[0] in FAMILIES:
                    commented.setdefault(scenario, set()).add((file, below[0]))
    return commented, known, problems


def check_rows(readme, ids, commented, known):
    problems = []
    rows = ROW.findall(readme)
    names = [row[0] for row in rows]
    problems += [f"{i}: no row in the table" for i in ids if i not in names]
    problems += [f"{i}: not in ids.txt" for i in sorted(set(names)) if i not in ids]
    problems += [f"{i}: more than one row" for i in sorted(set(names)) if names.count(i) > 1]
    problems += [f"{i}: a test claims it, ids.txt does not have it"
                 for i in sorted(commented) if i not in ids]
    for scenario, _, shown in rows:
        named = set(NAMED.findall(shown))
        wanted = commented.get(scenario, set())
        for file, test in sorted(named - known):
            problems.append(f"{scenario}: {file} has no test {test}")
        for file, test in sorted((named & known) - wanted):
            problems.append(f"{scenario}: {file} {test} has no comment that says so")
        for file, test in sorted(wanted - named):
            problems.append(f"{scenario}: its row lacks {file} {test}")
        if not named and not wanted and not WAITS.search(shown):
            problems.append(f"{scenario}: names neither a test nor what it waits for")
    return problems


def check_statuses(readme, statuses, errors):
    problems = []
    rows = STATUS.findall(readme)
    names = [row[0] for row in rows]
    problems += [f"{s}: no row among the statuses" for s in statuses if s not in names]
    problems += [f"{s}: not in statuses.txt" for s in sorted(set(names)) if s not in statuses]
    problems += [f"{s}: more than one row" for s in sorted(set(names)) if names.count(s) > 1]
    for status, answer, _ in rows:
        answers = re.findall(r"`(\w+)`", answer)
        problems += [f"{status}: {a} is no error" for a in answers if a not in errors]
        if not answers:
            problems.append(f"{status}: no error answers it")
    return problems


def updated(readme, commented):
    def row(match):
        scenario, summary, shown = match.groups()
        parts = [f"`{file}` {test}" for file, test in sorted(commented.get(scenario, set()))]
        rest = WAITS.search(shown)
        if rest and not (parts and shown.strip() == rest.group(0).strip()):
            parts.append(rest.group(0).strip())
        return f"| {scenario} | {summary} | {'<br>'.join(parts)} |"
    return ROW.sub(row, readme)


def main(root, update):
    folder = root / "tests/conformance"
    readme = (folder / "README.md").read_text()
    commented, known, problems = read_tests(root)
    if update:
        readme = updated(readme, commented)
        (folder / "README.md").write_text(readme)
    names = ERROR_NAMES.search((root / "allocator/base/result.h").read_text()).group(1)
    problems += check_rows(readme, (folder / "ids.txt").read_text().split(), commented, known)
    problems += check_statuses(readme, (folder / "statuses.txt").read_text().split(),
                               re.findall(r'"(\w+)"', names))
    for problem in problems:
        print(problem)
    if problems:
        print("after a new comment: tests/conformance/table.py ROOT --update")
    print(f"table: {len(problems)} problems" if problems else "table: complete")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), "--update" in sys.argv[2:]))
