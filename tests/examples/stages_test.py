"""Tests the three multi-member slots of docs/guide.md on CPU devices: stages in one process, stages in several
processes, and replicas on several devices. Each variant learns, and report and status show the members with
memory use."""

import json
import os
import re
import socket
import subprocess
import unittest

from programs_by_hand import SERVER, ProgramsByHand

STAGES, CONVNET, JOB = (os.path.abspath(f"examples/{name}") for name in
                        ("stages", "mnist_torchps", "mnist.textproto"))
PARTS = [200960, 164480, 166666]  # of 784-256-640-256-10
EPOCHS = 2


def free_addresses(count):
    """Returns distinct ports by keeping each port bound until the last port is found."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{held.getsockname()[1]}" for held in sockets]
    for held in sockets:
        held.close()
    return addresses


class StagesTest(ProgramsByHand):

    def report(self):
        with open(os.path.join(self.folder, "report.json"), encoding="utf-8") as file:
            return json.load(file)

    def run_by_psctl(self, program, *flags):
        """Runs psctl as in the guide. Returns the output and the report."""
        said = self.psctl("run", f"--worker_binary={program}", f"--server_binary={SERVER}", f"--job={JOB}",
                          f"--set=training.epochs={EPOCHS}", "--servers=2", "--workers=1",
                          "--report=report.json", "--dir=run", *flags)
        return said, self.report()

    def run_by_hand(self, *commands):
        """Runs workers on a server that keeps running, so that the finished job can be inspected. Returns the
        status text and the report."""
        server = self.start(SERVER, "--listen=127.0.0.1:0")
        address = self.line(server, "torchps_server ready").split("address=")[1].split()[0]
        workers = [self.start(*command, f"--servers={address}", f"--job={JOB}",
                              "--set=training.epochs=1", "--set=workers=1") for command in commands]
        for worker in workers:
            said = worker.communicate()[0]
            self.assertEqual(worker.returncode, 0, said)
        status = self.psctl("status", f"--servers={address}")
        self.psctl("report", f"--servers={address}", "--report=report.json")
        self.psctl("stop", f"--servers={address}")
        return status, self.report()

    def expect_learnt(self, report):
        self.assertTrue(report["finished"])
        self.assertTrue(report["reconciles"]["all"])
        first, last = report["epochs"][0], report["epochs"][-1]
        self.assertEqual(last["epoch"], EPOCHS)
        self.assertLess(last["train_loss"], first["train_loss"])
        self.assertLess(last["test"]["loss"], first["test"]["loss"])
        self.assertGreater(last["test"]["accuracy"], 0.9)  # a random guess scores 0.1

    def members(self, report):
        self.assertEqual(len(report["slots"]), 1, "all of them are one worker to the job")
        return report["slots"][0]["members"]

    def expect_stages(self, report, text, processes=False):
        """Checks that three members hold the model once, and each member only its share."""
        members = self.members(report)
        self.assertEqual([member["stage"] for member in members], [0, 1, 2])
        self.assertEqual([member["device"] for member in members], ["cpu"] * 3)
        self.assertEqual([member["parameters"] for member in members], PARTS)
        self.assertEqual(report["parameters"], sum(PARTS))
        # Values and gradients of four bytes each.
        whole = report["parameters"] * 2 * 4
        self.assertEqual(sum(member["model_bytes"] for member in members), whole)
        for member in members:
            self.assertEqual(member["model_bytes"], member["parameters"] * 2 * 4)
            self.assertLessEqual(member["model_bytes"], whole / 3 * 1.2)
        self.assertEqual([member["own_process"] for member in members], [processes] * 3)
        self.assertRegex(text, r"\b3 processes\b" if processes else r"\b3 devices\b")
        for stage, memory in enumerate(["1.5 MiB", "1.3 MiB", "1.3 MiB"]):
            self.assertRegex(text, rf"(?m)^ +cpu +stage {stage}, {PARTS[stage]:,} parameters, {memory}$")

    def expect_replicas(self, report, text):
        """Checks that two members hold the whole model each."""
        members = self.members(report)
        self.assertEqual([member["stage"] for member in members], [-1, -1])
        self.assertEqual([member["parameters"] for member in members], [report["parameters"]] * 2)
        first, second = (member["model_bytes"] for member in members)
        self.assertGreaterEqual(second, report["parameters"] * 2 * 4)
        self.assertGreater(first, second, "pulls land in memory of their own")
        self.assertRegex(text, r"\b2 devices\b")
        self.assertEqual(len(re.findall(r"(?m)^ +cpu +replica, \d+ KiB$", text)), 2, text)

    def test_device_and_process_stages_learn_the_same(self):
        # Both use one thread for each stage, so that rounding is equal on any machine.
        said, devices = self.run_by_psctl(STAGES, "--device=cpu,cpu,cpu", "--threads=3")
        self.expect_learnt(devices)
        self.expect_stages(devices, said)
        os.rename(os.path.join(self.folder, "run"), os.path.join(self.folder, "devices"))
        said, processes = self.run_by_psctl(STAGES, "--stages=3", "--threads=1")
        self.expect_learnt(processes)
        self.expect_stages(processes, said, processes=True)
        self.assertAlmostEqual(processes["result"]["loss"], devices["result"]["loss"], delta=1e-3)

    def test_status_shows_the_stages_of_one_process(self):
        status, report = self.run_by_hand([STAGES, "--device=cpu,cpu,cpu"])
        self.expect_stages(report, status)

    def test_status_shows_the_stages_of_processes(self):
        replica = ",".join(free_addresses(3))
        status, report = self.run_by_hand(
            *([STAGES, f"--stage={stage}", f"--replica={replica}"] for stage in range(3)))
        self.expect_stages(report, status, processes=True)

    def test_two_devices_hold_a_replica_each(self):
        said, report = self.run_by_psctl(CONVNET, "--device=cpu,cpu")
        self.expect_learnt(report)
        self.expect_replicas(report, said)

    def test_status_shows_the_replicas(self):
        status, report = self.run_by_hand([CONVNET, "--device=cpu,cpu"])
        self.expect_replicas(report, status)

    def test_runs_alone_with_its_own_servers(self):
        """Runs the command in the header comment of examples/stages.cc."""
        done = subprocess.run([STAGES, "--local", "--device=cpu,cpu,cpu", "--set", "optimizer.learning_rate=0.1"],
                              cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        accuracy = float(re.search(r"job finished .* accuracy ([0-9.]+)", done.stdout).group(1))
        self.assertGreater(accuracy, 0.8)


if __name__ == "__main__":
    unittest.main()
