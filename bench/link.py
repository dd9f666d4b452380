"""A link between two network namespaces with a limited rate and a delay. Needs root.

Without a delay, uses a veth pair with a tbf at each end. With a delay, uses bench/slow_link.cc between two TUN devices,
because many kernels lack netem.
"""

import itertools
import os
import subprocess

from sources import BIN, Skipped, Talker

# The tbf bucket holds 2 ms of traffic; further packets are queued for up to 50 ms.
BURST_SECONDS = 0.002
LATENCY = "50ms"
NUMBERS = itertools.count()


def link_name(gbits, delay_ms):
    return f"{gbits:g} Gbit/s, {delay_ms:g} ms"


class Link:
    """Created on first use, removed by close()."""

    def __init__(self, gbits, delay_ms):
        self.gbits = gbits
        self.delay_ms = delay_ms
        self.name = link_name(gbits, delay_ms)
        # Names and addresses are unique to this process and link.
        self.number = next(NUMBERS)
        self.ends = {end: f"tps-{end}{self.number}-{os.getpid()}" for end in "sw"}
        self.devices = {end: f"tps{end}{self.number}" for end in "sw"}
        self.hosts = {end: f"10.213.{77 + self.number}.{host}" for end, host in (("s", 1), ("w", 2))}
        self.made = False
        self.why_not = None
        self.carrier = None

    def flags(self):
        """Returns the driver's flags that put the servers at one end and the workers at the other."""
        if self.why_not:
            raise Skipped(self.why_not)
        if not self.made:
            try:
                self._make()
            except (Skipped, OSError) as why:
                self.why_not = str(why)
                raise Skipped(self.why_not) from why
        return [f"--server_prefix=ip netns exec {self.ends['s']}",
                f"--worker_prefix=ip netns exec {self.ends['w']}",
                f"--listen_host={self.hosts['s']}"]

    def _make(self):
        if os.geteuid() != 0:
            raise Skipped("a link needs network namespaces, which need root")
        self.made = True
        for namespace in self.ends.values():
            self._ip("netns", "add", namespace)
        if self.delay_ms:
            self._carry()
        else:
            self._ip("link", "add", self.devices["s"], "netns", self.ends["s"], "type", "veth",
                     "peer", "name", self.devices["w"], "netns", self.ends["w"])
        for end, device in self.devices.items():
            inside = ["-n", self.ends[end]]
            self._ip(*inside, "address", "add", f"{self.hosts[end]}/30", "dev", device)
            self._ip(*inside, "link", "set", device, "up")
            self._ip(*inside, "link", "set", "lo", "up")
            # cubic is Debian's default. A new namespace inherits the machine's setting. If the kernel does not allow
            # the change (net.ipv4.tcp_allowed_congestion_control), the rows show the algorithm in use.
            subprocess.run(["ip", "netns", "exec", self.ends[end], "sysctl", "-qw",
                            "net.ipv4.tcp_congestion_control=cubic"], stderr=subprocess.DEVNULL,
                           check=False)
            if not self.delay_ms:
                burst = int(self.gbits * 1e9 / 8 * BURST_SECONDS)
                self._run("tc", *inside, "qdisc", "add", "dev", device, "root", "tbf", "rate",
                          f"{self.gbits:g}gbit", "burst", str(burst), "latency", LATENCY)

    def _carry(self):
        self.carrier = Talker([os.path.join(BIN, "bench/slow_link"),
                               f"--ends={self.ends['s']},{self.ends['w']}",
                               f"--devices={self.devices['s']},{self.devices['w']}",
                               f"--rate_mbit={int(self.gbits * 1000)}",
                               f"--delay_us={int(self.delay_ms * 1000)}"])
        self.carrier.hear()

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
        if self.carrier:
            self.carrier.close()
        if self.made:
            for namespace in self.ends.values():
                subprocess.run(["ip", "netns", "delete", namespace], stderr=subprocess.DEVNULL,
                               check=False)
