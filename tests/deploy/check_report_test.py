"""Tests that deploy/check_report.py accepts a valid report and names each fault."""

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
    "reconciles": {
        "all": True,
        "samples_used": {"expected": 100, "actual": 100, "holds": True},
        "kept_gradients": {"expected": 5, "actual": 5, "holds": True},
    },
    "result": {"accuracy": 0.9},
}


class CheckReportTest(unittest.TestCase):
    def setUp(self):
        self.report = copy.deepcopy(RIGHT)

    def faults(self, drilled=False):
        return " / ".join(check_report.faults(self.report, servers=2, workers=2, accuracy=0.8, drilled=drilled))

    def test_accepts_a_finished_run(self):
        self.assertEqual(self.faults(), "")
        self.assertEqual(self.faults(drilled=True), "")

    def test_finds_a_silent_server(self):
        self.report["servers"][1]["error"] = "silent"
        self.assertIn("expected figures of 2 servers, got 1", self.faults())

    def test_names_a_failed_consistency_check(self):
        self.report["reconciles"]["samples_used"].update(actual=99, holds=False)
        self.report["reconciles"]["all"] = False
        self.assertIn("samples_used: expected 100, got 99", self.faults())

    def test_finds_an_accuracy_below_the_bar(self):
        self.report["result"]["accuracy"] = 0.7
        self.assertIn("accuracy of at least 0.8, got 0.7", self.faults())

    def test_accepts_an_extra_slot_only_after_a_drill(self):
        self.report["slots"].append({"steps": 1})
        self.assertIn("expected 2 slots that trained, got 3", self.faults())
        self.assertEqual(self.faults(drilled=True), "")

    def test_rejects_a_missing_slot_after_a_drill(self):
        self.report["slots"].pop()
        self.assertIn("expected 2 slots that trained, got 1", self.faults(drilled=True))

    def test_drill_requires_the_samples_check(self):
        self.report["reconciles"]["samples_used"].update(holds=None)
        self.assertEqual(self.faults(), "")
        self.assertIn("every sample to be used once", self.faults(drilled=True))

    def test_drill_requires_the_gradients_check(self):
        self.report["reconciles"]["kept_gradients"].update(holds=None)
        self.assertEqual(self.faults(), "")
        self.assertIn("acknowledged gradient", self.faults(drilled=True))

    def test_drill_forbids_rolled_back_updates(self):
        self.report["rolled_back"] = {"pushes": 4, "blocks": 8}
        self.assertEqual(self.faults(), "")
        self.assertIn("acknowledged steps are lost: 4", self.faults(drilled=True))


if __name__ == "__main__":
    unittest.main()
