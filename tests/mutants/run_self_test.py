#!/usr/bin/env python3
"""run.py itself: it must complain where no test notices a bug: run_self_test.py BUILD."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release")
HERE = pathlib.Path(__file__).resolve().parent
NOTICED = {
    "name": "noticed",
    "breaks": "a field's length is not a part of the namespace",
    "file": "allocator/namespace.cc",
    "old": "append_number(out, length, 8);",
    "new": "append_number(out, length, 4);",
    "test": "namespace_test",
    "filter": "Namespace.EncodesTypedLengthPrefixedFieldsInOrder",
}


def run(**changes):
    """Exit code and output for one bug."""
    fields = NOTICED | changes
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{key} = {value if isinstance(value, int) else repr(value)}"
                 for key, value in fields.items()]
        pathlib.Path(folder, "part.toml").write_text("[[mutant]]\n" + "\n".join(lines) + "\n")
        done = subprocess.run([sys.executable, "-B", str(HERE / "run.py"), str(BUILD), "--folder",
                               folder], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class Run(unittest.TestCase):
    def expect(self, code, said, **changes):
        got, output = run(**changes)
        self.assertEqual(got, code, output)
        self.assertIn(said, output)

    def test_a_bug_that_its_test_notices_is_well(self):
        self.expect(0, "1 planted bugs, 0 problems")

    def test_a_bug_that_no_test_notices_is_a_problem(self):
        self.expect(1, "no test notices it", new="append_number(out, length, 8);  // the same")

    def test_a_bug_that_its_test_notices_in_another_way_is_a_problem(self):
        self.expect(1, "ends by assertion, not by check", ends="check")

    def test_a_test_that_hangs_counts_only_where_it_is_said(self):
        hangs = "while (length != 0) { static volatile int spin; spin = 1; }"
        self.expect(1, "ends by timeout, not by assertion", new=hangs, seconds=2)
        self.expect(0, "0 problems", new=hangs, seconds=2, ends="timeout")

    def test_a_bug_that_does_not_compile_is_a_problem(self):
        self.expect(1, "cannot be compiled", new="append_numbers(out, length, 8);")

    def test_a_filter_without_tests_is_a_problem(self):
        self.expect(1, "without the bug", filter="Namespace.HasNoSuchTest")

    def test_a_file_that_is_no_part_of_the_test_is_a_problem(self):
        self.expect(1, "is no part of namespace_test", file="tiering/policies/lru.cc",
                    old="KV_CHECK(block_capacity < kAbsent);", new="")

    def test_text_that_is_not_there_once_is_an_error_in_the_entry(self):
        self.expect(2, "0 times in allocator/namespace.cc, not once", old="no such text")
        self.expect(2, "times in allocator/namespace.cc, not once", old="append_number(")

    def test_an_entry_with_an_unknown_key_is_an_error(self):
        self.expect(2, "unexpected keyword argument", why="it is better")


if __name__ == "__main__":
    unittest.main()
