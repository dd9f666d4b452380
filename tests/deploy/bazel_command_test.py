"""Tests of tools/bazel: what it makes of what was typed."""

import os
import subprocess
import unittest


def runs(*typed):
    """The arguments that Bazel gets."""
    result = subprocess.run(["tools/bazel", *typed], check=True, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "BAZEL_REAL": "/bin/echo"})
    return result.stdout.split()


class BazelCommandTest(unittest.TestCase):

    def test_test_with_nothing_after_it_is_all_tests(self):
        self.assertEqual(runs("test"), ["test", "//..."])
        self.assertEqual(runs("--batch", "test", "--config=asan"),
                         ["--batch", "test", "--config=asan", "//..."])

    def test_the_value_of_an_option_is_no_target(self):
        self.assertEqual(runs("test", "--config", "asan", "-c", "dbg"),
                         ["test", "--config", "asan", "-c", "dbg", "//..."])

    def test_what_names_targets_is_left_as_it_is(self):
        for typed in (["test", "//job/..."], ["test", "--config", "asan", "tests/job:all"],
                      ["test", "--", "//...", "-//bench/..."], ["test", "--target_pattern_file=list"]):
            self.assertEqual(runs(*typed), typed)

    def test_other_commands_are_left_as_they_are(self):
        for typed in ([], ["build"], ["help", "test"], ["query", "tests(//...)"]):
            self.assertEqual(runs(*typed), typed)


if __name__ == "__main__":
    unittest.main()
