"""docs/operate.md's "On several machines, by hand", on this one: certificates, servers and workers started by
hand, watched, stopped and resumed, with the flags that the page names."""

import json
import os
import re
import subprocess
import unittest

from programs_by_hand import SERVER, WORKER, ProgramsByHand

JOB = """
name: "byhand"
model { name: "linear" }
data { source: "digits" train_samples: 640 test_samples: 100 }
training { epochs: 100000 batch_size: 32 }
optimizer { sgd {} learning_rate: 0.05 }
"""


class ByHandTest(ProgramsByHand):

    JOB = JOB

    def start_servers(self, *resume):
        """Two of them; `resume` is for the first one."""
        servers = [self.start(SERVER, "--listen=127.0.0.1:0", "--certs=certs", "--dir=run", *flags)
                   for flags in (resume, ())]
        addresses = [self.line(server, "torchps_server ready").split("address=")[1].split()[0]
                     for server in servers]
        return servers, "--servers=" + ",".join(addresses)

    def worker(self, addresses):
        return [WORKER, addresses, "--certs=certs", "--job=job.textproto", "--set=workers=2"]

    def start_workers(self, addresses, *flags):
        return [self.start(*self.worker(addresses), *flags) for _ in range(2)]

    def test_the_page(self):
        self.psctl("certs", "--dir=certs", "--job=byhand", "--hosts=127.0.0.1")
        servers, addresses = self.start_servers()
        self.assertIn("no job yet", self.psctl("status", addresses, "--certs=certs"))
        # Without certificates every question is refused, and the code says so.
        for command in (["status"], ["report"], ["checkpoint"], ["stop"]):
            self.assertIn("refuses this client", self.psctl(*command, addresses, code=4))

        workers = self.start_workers(addresses)
        for worker in workers:
            self.line(worker, "torchps_worker progress")
        self.assertIn("byhand is running", self.psctl("status", addresses, "--certs=certs"))
        self.assertIn("run/checkpoint-", self.psctl("checkpoint", addresses, "--certs=certs"))
        # What a worker has in hand it gives back when it is told to stop.
        for worker in workers:
            worker.terminate()
            self.assertEqual(worker.wait(), 0)
        self.assertIn("byhand", self.psctl("report", addresses, "--certs=certs"))
        said = self.psctl("stop", addresses, "--certs=certs")
        self.assertEqual(said.count("has stopped"), 2, said)
        self.assertEqual([server.wait() for server in servers], [0, 0])

        servers, addresses = self.start_servers("--resume")
        refused = subprocess.run([*self.worker(addresses), "--set=training.epochs=1"], cwd=self.folder,
                                 capture_output=True, text=True)
        self.assertEqual(refused.returncode, 4, refused.stderr)
        begun = re.search(r"training.epochs is 1; expected at least (\d+)", refused.stderr)
        workers = self.start_workers(addresses, f"--set=training.epochs={begun.group(1)}")
        said = self.psctl("report", addresses, "--certs=certs", "--wait", "--report=report.json")
        self.assertIn("byhand finished", said)
        self.assertEqual([worker.wait() for worker in workers], [0, 0])
        with open(os.path.join(self.folder, "report.json"), encoding="utf-8") as file:
            self.assertTrue(json.load(file)["reconciles"])
        self.psctl("stop", addresses, "--certs=certs")
        self.assertEqual([server.wait() for server in servers], [0, 0])


if __name__ == "__main__":
    unittest.main()
