"""Tests of deploy/check_report.py: a report is taken, and each thing that is wrong with one is said."""

import copy
import os
import sys
import unittest

sys.path.insert(0, os.path.abspath("deploy"))

import check_report  # noqa: E402

RIGHT = {
    "finished": True,
    "servers": [{"index": 0}, {"index": 1}],
    "slots": [{"steps": 3}, {"steps": 2}],
    "reconciles": {"all": True, "samples_used": {"expected": 100, "actual": 100, "holds": True}},
    "result": {"accuracy": 0.9},
}


class CheckReportTest(unittest.TestCase):
    def setUp(self):
        self.report = copy.deepcopy(RIGHT)

    def faults(self, drilled=False):
        return " / ".join(check_report.faults(self.report, servers=2, workers=2, accuracy=0.8, drilled=drilled))

    def test_what_a_finished_run_leaves_is_taken(self):
        self.assertEqual(self.faults(), "")
        self.assertEqual(self.faults(drilled=True), "")

    def test_a_server_that_is_silent_is_missed(self):
        self.report["servers"][1]["error"] = "silent"
        self.assertIn("expected figures of 2 servers, got 1", self.faults())

    def test_books_that_do_not_agree_are_named(self):
        self.report["reconciles"]["samples_used"].update(actual=99, holds=False)
        self.report["reconciles"]["all"] = False
        self.assertIn("samples_used: expected 100, got 99", self.faults())

    def test_an_accuracy_below_the_bar_is_told(self):
        self.report["result"]["accuracy"] = 0.7
        self.assertIn("accuracy of at least 0.8, got 0.7", self.faults())

    def test_a_slot_too_many_is_taken_after_a_drill_only(self):
        self.report["slots"].append({"steps": 1})
        self.assertIn("expected 2 slots that trained, got 3", self.faults())
        self.assertEqual(self.faults(drilled=True), "")

    def test_a_slot_too_few_is_not_taken_after_a_drill_either(self):
        self.report["slots"].pop()
        self.assertIn("expected 2 slots that trained, got 1", self.faults(drilled=True))

    def test_after_a_drill_samples_have_to_be_judged(self):
        self.report["reconciles"]["samples_used"].update(holds=None)
        self.assertEqual(self.faults(), "")
        self.assertIn("every sample to be used once", self.faults(drilled=True))

    def test_after_a_drill_nothing_may_be_rolled_back(self):
        self.report["rolled_back"] = {"pushes": 4, "blocks": 8}
        self.assertEqual(self.faults(), "")
        self.assertIn("acknowledged steps are lost: 4", self.faults(drilled=True))


if __name__ == "__main__":
    unittest.main()
