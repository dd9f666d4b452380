#!/usr/bin/env python3
"""Measures the cost of unauthenticated clients to a training job: half-open TLS handshakes and silent Push streams.

  hostile.py [--minutes=60] [--window=30] [--json=rows.jsonl]

Runs one job with TLS on this machine's loopback, which trains all the time. Windows with and without the attack come
in pairs, in random order within each pair, so that other load affects both alike. The result is the ratio of steps per
second in each pair. The attack, from 127.0.0.2, holds --handshakes connections to each server that send only the first
bytes of a TLS hello, and --streams connections with a worker's certificate. The latter start a silent Push stream every
5 s. Connections that a server closes are reopened, at most --rate per second. The attacker shares the machine's cores
with the job, so its processor time counts against the job; the output includes it. With --attack_cpu=N the attacker
uses only processor N and the job uses the others, as if the attack came from another machine.

Prints a table and a verdict. Exits 1 if the attack costs more than --at_most of the job's speed, or if a
process ended.
"""

import argparse
import bisect
import contextlib
import json
import os
import random
import re
import select
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOB = """
name: "hostile" workers: {workers}
model {{ name: "mlp" hidden: 256 }}
data {{ source: "digits" }}
training {{ epochs: 1000000 batch_size: 64 global_batch: false evaluate: false }}
optimizer {{ adam {{}} learning_rate: 1e-4 }}
consistency {{ mode: ASYNC staleness_bound: 4 }}
durability {{ level: {level} checkpoint_seconds: 10 }}
"""
PROGRESS = re.compile(r"torchps_worker progress slot=\d+ .*?step=(\d+)")
ELSEWHERE = "127.0.0.2"
# The first 43 bytes of a TLS hello that declares 517 bytes.
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + 32 * b"r"
STREAM_SECONDS = 5
# Waiting time after a switch, before the measurement.
SETTLE_SECONDS = 2


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(index, value):
    """Encodes an HTTP/2 header; `index` refers to the name in the static table."""
    return index + bytes([len(value)]) + value


def push_headers(stream):
    """Returns the headers of a Push call without messages."""
    block = b"\x83\x87" + header(b"\x04", b"/torchps.ParameterService/Push") + header(b"\x01", b"server") \
        + header(b"\x0f\x10", b"application/grpc") + b"\x00" + header(b"\x02te", b"trailers")
    return frame(1, 4, stream, block)


class Stranger:
    """Holds one connection open: half a handshake, or silent Push streams over TLS."""

    def __init__(self, address, tls=None):
        self.address = address
        self.tls = tls
        self.socket = None
        self.streams = 0
        self.next_stream = 0.0

    def open(self):
        from_where = (ELSEWHERE, 0) if self.address[0].startswith("127.") else None
        connection = socket.create_connection(self.address, timeout=2, source_address=from_where)
        try:
            if self.tls:
                connection = self.tls.wrap_socket(connection)
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
            else:
                connection.sendall(HALF_A_HELLO)
            connection.setblocking(False)
        except OSError:
            connection.close()
            raise
        self.socket, self.streams, self.next_stream = connection, 0, 0.0

    def speak(self, now):
        if self.tls and now >= self.next_stream:
            self.socket.sendall(push_headers(2 * self.streams + 1))
            self.streams += 1
            self.next_stream = now + STREAM_SECONDS

    def drain(self):
        """Raises OSError if the server has closed the connection."""
        try:
            while True:
                if not self.socket.recv(65536):
                    raise ConnectionResetError
        except (BlockingIOError, ssl.SSLWantReadError):
            return

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None


def attack(arguments):
    """Runs the attacker's process: reads "on" and "off" from standard input, and prints one line of figures at each
    "off"."""
    # The attacker does not verify the server.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.load_cert_chain(*(os.path.join(arguments.certs, name) for name in ("cert.pem", "key.pem")))
    tls.set_alpn_protocols(["h2"])
    addresses = [(host, int(port)) for host, port in (at.split(":") for at in arguments.attack.split(","))]
    strangers = [Stranger(address, context) for address in addresses
                 for context, count in ((tls, arguments.streams), (None, arguments.handshakes))
                 for _ in range(count)]
    poll, by_file = select.epoll(), {}
    on, budget, last = False, 0.0, time.monotonic()
    counts = {"opened": 0, "refused": 0, "closed": 0, "streams": 0}
    first = 0  # round robin, so that the last connections do not starve
    while True:
        for file, _ in poll.poll(0.05 if on else 1):
            stranger = by_file[file]
            if stranger is None:
                word = sys.stdin.readline().strip()
                if not word:
                    return
                on = word == "on"
                continue
            try:
                stranger.drain()
            except OSError:
                del by_file[file]
                stranger.close()
                counts["closed"] += 1
        if not by_file:
            poll.register(sys.stdin, select.EPOLLIN)
            by_file[sys.stdin.fileno()] = None
        now = time.monotonic()
        budget = min(budget + (now - last) * arguments.rate, arguments.rate / 4)
        last = now
        if not on:
            held = [stranger for stranger in strangers if stranger.socket]
            if held:
                print(json.dumps({**counts, "held": len(held), "cpu_seconds": time.process_time()}), flush=True)
            for stranger in held:
                del by_file[stranger.socket.fileno()]
                stranger.close()
            continue
        for at in range(first, first + len(strangers)):
            stranger = strangers[at % len(strangers)]
            try:
                if stranger.socket is None:
                    if budget < 1:
                        continue
                    budget -= 1
                    first = at + 1
                    stranger.open()
                    counts["opened"] += 1
                    by_file[stranger.socket.fileno()] = stranger
                    poll.register(stranger.socket, select.EPOLLIN)
                before = stranger.streams
                stranger.speak(now)
                counts["streams"] += stranger.streams - before
            except OSError:
                counts["refused"] += 1
                if stranger.socket:
                    by_file.pop(stranger.socket.fileno(), None)
                stranger.close()


class Process:
    """Runs a torchps program and reads its resource usage."""

    def __init__(self, stack, *command):
        self.name = os.path.basename(command[0])
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(self.child.wait)
        stack.callback(self.child.kill)

    def await_line(self, beginning):
        for line in self.child.stdout:
            if line.startswith(beginning):
                return line
        sys.exit(f"hostile.py: {self.name} ended without printing '{beginning}'")

    def cpu_seconds(self):
        with open(f"/proc/{self.child.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self):
        with open(f"/proc/{self.child.pid}/statm", encoding="utf-8") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def files(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))


class Worker(Process):
    """Runs a worker and records the time of each progress line."""

    def __init__(self, stack, *command):
        super().__init__(stack, *command)
        self.times, self.steps = [], []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            found = PROGRESS.match(line)
            if found:
                self.steps.append(int(found.group(1)))
                self.times.append(time.monotonic())

    def steps_at(self, moment):
        """Returns the step count at `moment`, interpolated between two progress lines."""
        times = self.times[:]
        at = min(max(bisect.bisect(times, moment), 1), len(times) - 1)
        width = times[at] - times[at - 1]
        part = (moment - times[at - 1]) / width if width else 0
        return self.steps[at - 1] + min(max(part, 0), 1) * (self.steps[at] - self.steps[at - 1])


class Job:
    def __init__(self, stack, arguments):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile-"))
        self.bin = arguments.bin
        self.certs = os.path.join(folder, "certs")
        self.psctl("certs", f"--dir={self.certs}", "--job=hostile", "--hosts=127.0.0.1", certs=False)
        job = os.path.join(folder, "job.textproto")
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB.format(workers=arguments.workers, level=arguments.level))
        self.servers = [Process(stack, os.path.join(self.bin, "torchps/ps_server"), "--listen=127.0.0.1:0",
                                f"--certs={self.certs}", f"--dir={folder}/state")
                        for _ in range(arguments.servers)]
        self.addresses = ",".join(server.await_line("torchps_server ready").split("address=")[1].split()[0]
                                  for server in self.servers)
        self.workers = [Worker(stack, os.path.join(self.bin, "torchps/ps_worker"), f"--servers={self.addresses}",
                               f"--job={job}", f"--certs={self.certs}", f"--slot={slot}", "--threads=1",
                               "--progress_seconds=0.2") for slot in range(arguments.workers)]

    def psctl(self, *words, certs=True):
        command = [os.path.join(self.bin, "torchps/psctl"), *words]
        if certs:
            command += [f"--certs={self.certs}", f"--servers={self.addresses}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.stdout

    def checkpoints(self):
        found = re.search(r"checkpoint (\d+): ", self.psctl("status"))
        return int(found.group(1)) if found else 0

    def check(self):
        for process in self.servers + self.workers:
            if process.child.poll() is not None:
                sys.exit(f"hostile.py: {process.name} ended with {process.child.returncode}")

    def state(self):
        return {"checkpoints": self.checkpoints(), "files": [server.files() for server in self.servers],
                "rss_mb": [round(server.rss_mb()) for server in self.servers]}

    def window(self, seconds):
        """Returns the workers' steps per second and the servers' processor time per push."""
        time.sleep(SETTLE_SECONDS)
        begin, cpu = time.monotonic(), sum(server.cpu_seconds() for server in self.servers)
        time.sleep(seconds)
        end, cpu = time.monotonic(), sum(server.cpu_seconds() for server in self.servers) - cpu
        time.sleep(0.5)  # waits for the next progress line
        self.check()
        steps = sum(worker.steps_at(end) - worker.steps_at(begin) for worker in self.workers)
        return {"steps_per_second": steps / (end - begin), "cpu_ms_per_push": 1000 * cpu / max(steps, 1)}


def keep_to(process, cpus):
    """Pins all threads of a process, and thereby the threads that they start."""
    for task in os.listdir(f"/proc/{process}/task"):
        os.sched_setaffinity(int(task), cpus)


def measure(arguments):
    drawn = random.Random(arguments.seed)
    window = min(arguments.window, arguments.minutes * 60 / 8)
    pairs = max(2, int(arguments.minutes * 60 / (2 * (window + SETTLE_SECONDS))))
    rows, figures = [], {}
    with contextlib.ExitStack() as stack:
        job = Job(stack, arguments)
        cpus = os.sched_getaffinity(0)
        if arguments.attack_cpu >= 0:
            for process in job.servers + job.workers:
                keep_to(process.child.pid, cpus - {arguments.attack_cpu})
        attacker = Process(stack, sys.executable, os.path.abspath(__file__), f"--attack={job.addresses}",
                           f"--certs={job.certs}/worker", f"--handshakes={arguments.handshakes}",
                           f"--streams={arguments.streams}", f"--rate={arguments.rate}")
        if arguments.attack_cpu >= 0:
            keep_to(attacker.child.pid, {arguments.attack_cpu})

        def order(word):
            attacker.child.stdin.write(word + "\n")
            attacker.child.stdin.flush()

        while min(len(worker.times) for worker in job.workers) < 10:
            job.check()
            time.sleep(0.2)
        before = job.state()
        for pair in range(pairs):
            row = {"pair": pair}
            for attacked in drawn.sample([False, True], 2):
                if attacked:
                    order("on")
                row["attacked" if attacked else "alone"] = job.window(window)
                if attacked:
                    row["state"] = job.state()
                    order("off")
                    figures = json.loads(attacker.await_line("{"))
            row["ratio"] = row["attacked"]["steps_per_second"] / row["alone"]["steps_per_second"]
            rows.append(row)
            if arguments.json:
                with open(arguments.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        after = job.state()
        job.psctl("stop")
    return rows, before, after, figures, window


def told(rows, before, after, figures, window, arguments):
    def median(kind, field):
        return statistics.median(row[kind][field] for row in rows)

    ratios = sorted(row["ratio"] for row in rows)
    ratio = statistics.median(ratios)
    seconds = len(rows) * window
    print(f"{len(rows)} pairs of windows of {window:.1f} s, seed {arguments.seed}; against each server "
          f"{arguments.handshakes} half-open handshakes and {arguments.streams} silent streams at once")
    print("\n| | steps per second | servers' CPU ms per push |\n|---|---|---|")
    for kind in ("alone", "attacked"):
        print(f"| {kind} | {median(kind, 'steps_per_second'):.1f} | {median(kind, 'cpu_ms_per_push'):.3f} |")
    print(f"\nthe attack, in {seconds:.0f} s: {figures['opened']} connections opened, {figures['closed']} "
          f"closed by a server, {figures['refused']} failed, {figures['streams']} streams, "
          f"{figures['held']} held at the end; its own CPU {figures['cpu_seconds'] / seconds:.2f} of a core")
    most = {field: [max(row["state"][field][i] for row in rows) for i in range(arguments.servers)]
            for field in ("files", "rss_mb")}
    for field, name in (("files", "open files of each server"), ("rss_mb", "RSS of each server, MB")):
        print(f"{name}: {before[field]} before, at most {most[field]} under attack, {after[field]} at the end")
    print(f"checkpoints completed: {after['checkpoints'] - before['checkpoints']}")
    kept = ratio >= 1 - arguments.at_most and after["checkpoints"] > before["checkpoints"]
    quarters = statistics.quantiles(ratios, n=4)
    print(f"verdict: {'kept' if kept else 'MISSED'}: steps per second under attack by those alone, median {ratio:.3f} "
          f"(quartiles {quarters[0]:.3f} and {quarters[2]:.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}); "
          f"the bar is {1 - arguments.at_most:.2f}")
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--window", type=float, default=30, help="seconds; shorter if --minutes is small")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--level", default="CHECKPOINT", help="the job's durability; LOG is limited by the disk")
    parser.add_argument("--handshakes", type=int, default=600, help="held at each server")
    parser.add_argument("--streams", type=int, default=32, help="held at each server")
    parser.add_argument("--rate", type=float, default=200, help="new connections a second, to all servers together")
    parser.add_argument("--attack_cpu", type=int, default=-1, help="a processor for the attacker alone; default: none")
    parser.add_argument("--at_most", type=float, default=0.05, help="largest loss, as a fraction of the job's speed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", default=os.path.join(ROOT, "bazel-bin"))
    parser.add_argument("--json", default="", help="appends a line for each pair")
    parser.add_argument("--attack", default="", help=argparse.SUPPRESS)
    parser.add_argument("--certs", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        attack(arguments)
        return
    sys.exit(0 if told(*measure(arguments), arguments) else 1)


if __name__ == "__main__":
    main()
