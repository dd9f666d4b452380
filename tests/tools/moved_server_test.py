"""Tests "A server's machine is lost" of docs/operate.md: a server that starts on another port with the shared or copied
directory continues as the same server. Covers each server, including server 0."""

import os
import signal
import unittest

from programs_by_hand import SERVER, WORKER, ProgramsByHand


class MovedServerTest(ProgramsByHand):
    JOB = """
name: "moved"
workers: 2
model { name: "linear" }
data { source: "digits" train_samples: 1000 test_samples: 100 }
training { epochs: 4 batch_size: 20 }
optimizer { sgd {} learning_rate: 0.05 }
membership { lease_seconds: 1 }
durability { checkpoint_seconds: 1 }
"""

    def start_server(self, directory, *flags):
        """Returns the process and its address."""
        server = self.start(SERVER, "--listen=127.0.0.1:0", f"--dir={directory}", *flags)
        return server, self.line(server, "torchps_server ready").split("address=")[1].split()[0]

    def start_workers(self, addresses, *flags):
        return [self.start(WORKER, "--servers=" + ",".join(addresses), "--job=job.textproto", f"--slot={slot}", *flags)
                for slot in range(2)]

    def kill(self, *processes):
        for process in processes:
            process.send_signal(signal.SIGKILL)
            self.assertEqual(process.wait(), -signal.SIGKILL)

    def begin(self):
        """Starts a job slow enough not to end, and waits for a checkpoint. Returns processes and addresses."""
        servers, addresses = zip(*(self.start_server(f"dir-{index}") for index in range(2)))
        workers = self.start_workers(addresses, "--pace=50")
        for worker in workers:
            self.line(worker, "torchps_worker progress")
        self.psctl("checkpoint", "--servers=" + ",".join(addresses))
        return list(servers), list(addresses), workers

    def move(self, index):
        """Moves a server's directory, as if copied to another machine."""
        os.rename(os.path.join(self.folder, f"dir-{index}"), os.path.join(self.folder, "elsewhere"))
        return "elsewhere"

    def expect_a_good_end(self, servers, addresses):
        workers = self.start_workers(addresses)
        names = "--servers=" + ",".join(addresses)
        said = self.psctl("report", names, "--wait")
        self.assertIn("moved finished", said)
        self.assertIn("consistency check passed", said)
        self.assertEqual([worker.wait() for worker in workers], [0, 0])
        # The coordinator finds the server at its new address.
        self.assertIn("checkpoint ", self.psctl("checkpoint", names))
        self.psctl("stop", names)
        self.assertEqual([server.wait() for server in servers], [0, 0])

    def lose_one_machine(self, index):
        """Moves one server. The other server keeps running, and so do the workers until they are stopped."""
        servers, addresses, workers = self.begin()
        self.kill(servers[index])
        servers[index], addresses[index] = self.start_server(self.move(index))
        self.kill(*workers)
        self.expect_a_good_end(servers, addresses)

    def lose_all_machines(self, index):
        """Restarts the whole cluster on new ports, with one directory moved."""
        servers, addresses, workers = self.begin()
        self.kill(*servers, *workers)
        directories = ["dir-0", "dir-1"]
        directories[index] = self.move(index)
        servers[0], addresses[0] = self.start_server(directories[0], "--resume")
        servers[1], addresses[1] = self.start_server(directories[1])
        self.expect_a_good_end(servers, addresses)

    def test_server_1_moves(self):
        self.lose_one_machine(1)

    def test_server_0_moves(self):
        self.lose_one_machine(0)

    def test_cluster_restarts_with_server_1_moved(self):
        self.lose_all_machines(1)

    def test_cluster_restarts_with_server_0_moved(self):
        self.lose_all_machines(0)


if __name__ == "__main__":
    unittest.main()
