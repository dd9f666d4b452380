"""Starts torchps programs by hand in a temporary folder, as in docs/operate.md."""

import os
import subprocess
import tempfile
import unittest

PSCTL, SERVER, WORKER = (os.path.abspath(path) for path in
                         ("torchps/psctl", "torchps/ps_server", "torchps/ps_worker"))


class ProgramsByHand(unittest.TestCase):
    JOB = ""  # contents of job.textproto

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(self.folder, "job.textproto"), "w", encoding="utf-8") as file:
            file.write(self.JOB)

    def start(self, *command):
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def line(self, process, beginning):
        """Returns the next line of `process` with this prefix."""
        for line in process.stdout:
            if line.startswith(beginning):
                return line
        self.fail(f"{process.args} ended with {process.wait()} and never said {beginning}")

    def psctl(self, *arguments, code=0):
        done = subprocess.run([PSCTL, *arguments], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr
