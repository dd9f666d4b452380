"""Tests how tools/bazel changes the command line."""

import os
import subprocess
import unittest


def runs(*typed):
    """Returns the arguments that Bazel gets."""
    result = subprocess.run(["tools/bazel", *typed], check=True, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "BAZEL_REAL": "/bin/echo"})
    return result.stdout.split()


class BazelCommandTest(unittest.TestCase):

    def test_bare_test_runs_all_tests(self):
        self.assertEqual(runs("test"), ["test", "//..."])
        self.assertEqual(runs("--batch", "test", "--config=asan"),
                         ["--batch", "test", "--config=asan", "//..."])

    def test_option_value_is_not_a_target(self):
        self.assertEqual(runs("test", "--config", "asan", "-c", "dbg"),
                         ["test", "--config", "asan", "-c", "dbg", "//..."])

    def test_keeps_explicit_targets(self):
        for typed in (["test", "//torchps/job/..."], ["test", "--config", "asan", "tests/job:all"],
                      ["test", "--", "//...", "-//bench/..."], ["test", "--target_pattern_file=list"]):
            self.assertEqual(runs(*typed), typed)

    def test_keeps_other_commands(self):
        for typed in ([], ["build"], ["help", "test"], ["query", "tests(//...)"]):
            self.assertEqual(runs(*typed), typed)


if __name__ == "__main__":
    unittest.main()
