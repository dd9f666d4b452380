#!/usr/bin/python3
"""Measures all_reduce of float32 tensors between processes over gloo on loopback.

  gloo_all_reduce.py RANK RANKS RENDEZVOUS_FILE

Each line on standard input, "BYTES SECONDS LEAST", requests one repetition; all ranks get the same
lines. Each rank answers with one JSON object. Connections use cubic if the kernel permits it, like
the product's. Needs Debian's python3-torch, so it runs with /usr/bin/python3.
"""

import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist


def tcp_sockets():
    """Returns copies of this process's connected TCP sockets."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            candidate = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        try:
            candidate.getpeername()
            candidate.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            found.append(candidate)
        except OSError:
            candidate.close()
    return found


def choose_cubic():
    """Selects cubic for the connections. Returns the algorithms in use."""
    algorithms = set()
    for connection in tcp_sockets():
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        except OSError:
            pass  # not permitted; the returned algorithms show it
        name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        algorithms.add(name.rstrip(b"\0").decode())
        connection.close()
    return ",".join(sorted(algorithms))


def timed(tensor):
    begin = time.monotonic()
    dist.all_reduce(tensor)
    return time.monotonic() - begin


def repeat(tensor, seconds, least):
    """Returns the latencies of as many all_reduces as fit in `seconds`, the same number on every
    rank."""
    wanted = torch.tensor([max(least, int(seconds / max(timed(tensor), 1e-6)))])
    dist.broadcast(wanted, src=0)
    latencies = []
    for _ in range(int(wanted)):
        latencies.append(timed(tensor))
        tensor.fill_(1.0) if len(latencies) % 64 == 0 else None  # sums must not overflow
    return latencies


def main():
    rank, ranks, rendezvous = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
    tensors = {}
    congestion = ""
    print("ready", flush=True)
    for line in sys.stdin:
        size, seconds, least = line.split()
        if size not in tensors:
            tensors[size] = torch.full((int(size) // 4,), 1e-3)
            timed(tensors[size])
            congestion = choose_cubic()
        cpu = time.process_time()
        latencies = sorted(repeat(tensors[size], float(seconds), int(least)))
        print(json.dumps({
            "p50_us": 1e6 * latencies[len(latencies) // 2],
            "p99_us": 1e6 * latencies[int(0.99 * (len(latencies) - 1) + 0.5)],
            "mean_us": 1e6 * sum(latencies) / len(latencies),
            "operations": len(latencies),
            "cpu_s": time.process_time() - cpu,
            "congestion_control": congestion,
        }), flush=True)


if __name__ == "__main__":
    main()
