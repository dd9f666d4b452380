#!/usr/bin/env python3
"""Name server for tests that move names. Answers queries for A records from a file with lines such as
"198.18.0.1 alpha", which it rereads for each query. Answers are not cacheable (TTL 0).

    deploy/name_server.py ADDRESS FILE
"""

import ipaddress
import socket
import struct
import sys

A_RECORD = 1
NO_SUCH_NAME = 3


def name_of(question):
    """Returns the name at the start of a question, and its end."""
    labels, at = [], 0
    while question[at]:
        labels.append(question[at + 1:at + 1 + question[at]].decode("ascii").lower())
        at += 1 + question[at]
    return ".".join(labels), at + 1


def address_of(name, path):
    with open(path, encoding="ascii") as file:
        for line in file:
            address, *names = line.split()
            if name in names:
                return ipaddress.ip_address(address).packed
    return None


def answer(query, path):
    name, end = name_of(query[12:])
    question = query[12:12 + end + 4]
    kind, = struct.unpack("!H", question[end:end + 2])
    address = address_of(name, path)
    records = b""
    if address is not None and kind == A_RECORD:
        records = struct.pack("!HHHIH", 0xC00C, A_RECORD, 1, 0, len(address)) + address
    # Flags: response, authoritative.
    flags = 0x8400 | (query[2] & 1) << 8 | (NO_SUCH_NAME if address is None else 0)
    return query[:2] + struct.pack("!HHHHH", flags, 1, 1 if records else 0, 0, 0) + question + records


def main(address, path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind((address, 53))
        while True:
            query, asker = port.recvfrom(512)
            try:
                port.sendto(answer(query, path), asker)
            except (IndexError, ValueError, struct.error):
                pass  # not a valid query


if __name__ == "__main__":
    main(*sys.argv[1:])
