"""A link of 1 Gbit/s: two network namespaces, a veth pair between them, a tbf at each end."""

import os
import subprocess

from sources import Skipped

RATE = "1gbit"
# A bucket of 2 ms at that rate; what does not fit waits in the queue for up to 50 ms.
BURST = "256kb"
LATENCY = "50ms"
SERVER_HOST = "10.213.77.1"
WORKER_HOST = "10.213.77.2"


class Link:
    """Made when first asked for, removed by close(). Needs root."""

    def __init__(self):
        self.ends = {end: f"tps-{end}-{os.getpid()}" for end in "sw"}
        self.made = False

    def flags(self):
        """What makes the driver put its servers at one end and its workers at the other."""
        if not self.made:
            self._make()
        return [f"--server_prefix=ip netns exec {self.ends['s']}",
                f"--worker_prefix=ip netns exec {self.ends['w']}",
                f"--listen_host={SERVER_HOST}"]

    def _make(self):
        if os.geteuid() != 0:
            raise Skipped("a link of 1 Gbit/s takes network namespaces, and they take root")
        self.made = True
        devices = {end: f"tps{end}{os.getpid()}" for end in "sw"}
        for namespace in self.ends.values():
            self._ip("netns", "add", namespace)
        self._ip("link", "add", devices["s"], "netns", self.ends["s"], "type", "veth", "peer",
                 "name", devices["w"], "netns", self.ends["w"])
        for end, host in (("s", SERVER_HOST), ("w", WORKER_HOST)):
            inside = ["-n", self.ends[end]]
            self._ip(*inside, "address", "add", f"{host}/30", "dev", devices[end])
            self._ip(*inside, "link", "set", devices[end], "up")
            self._ip(*inside, "link", "set", "lo", "up")
            self._run("tc", *inside, "qdisc", "add", "dev", devices[end], "root", "tbf", "rate",
                      RATE, "burst", BURST, "latency", LATENCY)

    def _ip(self, *arguments):
        self._run("ip", *arguments)

    def _run(self, *command):
        try:
            result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                    text=True, check=False)
        except FileNotFoundError as error:
            raise Skipped(f"{command[0]} is missing; deploy/setup.sh bench installs it") from error
        if result.returncode != 0:
            raise Skipped(f"'{' '.join(command)}' failed: {result.stderr.strip()}")

    def close(self):
        if self.made:
            for namespace in self.ends.values():
                subprocess.run(["ip", "netns", "delete", namespace], stderr=subprocess.DEVNULL,
                               check=False)
