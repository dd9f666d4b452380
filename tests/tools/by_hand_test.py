"""Tests "On several machines, by hand" of docs/operate.md on this machine: starts servers and workers with certificates,
watches, stops and resumes them, with the flags of that page."""

import json
import os
import re
import socket
import subprocess
import threading
import unittest

from programs_by_hand import SERVER, WORKER, ProgramsByHand

JOB = """
name: "byhand"
model { name: "linear" }
data { source: "digits" train_samples: 640 test_samples: 100 }
training { epochs: 100000 batch_size: 32 }
optimizer { sgd {} learning_rate: 0.05 }
"""


def answer_without_tls(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"no TLS here")


class ByHandTest(ProgramsByHand):

    JOB = JOB

    def start_servers(self, *resume):
        """Starts two servers; `resume` applies to the first."""
        servers = [self.start(SERVER, "--listen=127.0.0.1:0", "--certs=certs", "--dir=run", *flags)
                   for flags in (resume, ())]
        addresses = [self.line(server, "torchps_server ready").split("address=")[1].split()[0]
                     for server in servers]
        return servers, "--servers=" + ",".join(addresses)

    def worker(self, addresses):
        return [WORKER, addresses, "--certs=certs", "--job=job.textproto", "--set=workers=2"]

    def start_workers(self, addresses, *flags):
        return [self.start(*self.worker(addresses), *flags) for _ in range(2)]

    def test_follows_the_page(self):
        self.psctl("certs", "--dir=certs", "--job=byhand", "--hosts=127.0.0.1")
        servers, addresses = self.start_servers()
        self.assertIn("no job yet", self.psctl("status", addresses, "--certs=certs"))
        # Without certificates, each request is rejected with the exit code for that.
        for command in (["status"], ["report"], ["checkpoint"], ["stop"]):
            self.assertIn("refuses this client", self.psctl(*command, addresses, code=4))

        workers = self.start_workers(addresses)
        for worker in workers:
            self.line(worker, "torchps_worker progress")
        self.assertIn("byhand is running", self.psctl("status", addresses, "--certs=certs"))
        self.assertIn("run/checkpoint-", self.psctl("checkpoint", addresses, "--certs=certs"))
        # A worker returns its unfinished samples when it is stopped.
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

    def test_prints_no_log_of_grpc(self):
        self.psctl("certs", "--dir=certs", "--job=byhand", "--hosts=127.0.0.1")
        with socket.create_server(("127.0.0.1", 0)) as foreign:
            threading.Thread(target=answer_without_tls, args=(foreign,), daemon=True).start()
            address = f"--servers=127.0.0.1:{foreign.getsockname()[1]}"
            said = self.psctl("status", address, "--certs=certs", code=4)
        self.assertIn("answers, but is not a torchps server", said)
        self.assertNotRegex(said, r"(?m)^E\d{4} ")


if __name__ == "__main__":
    unittest.main()
