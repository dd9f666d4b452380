#!/usr/bin/env python3
"""Prints the headers that a program outside this tree needs, one path per line.

    deploy/install/public_headers.py [FOLDER...]

Programs include torchps/train.h or torchps/session.h. The list also has what these include, from this tree or from a
FOLDER of generated headers. All paths begin with torchps/. Fails if a header is not found.
"""

import os
import re
import sys

PUBLIC = ["torchps/train.h", "torchps/session.h"]
# Headers of this tree use quotes. torch, Abseil and Protobuf are not part of this tree.
FOREIGN = re.compile(r"^(absl|torch|google|grpcpp|grpc\+\+)/")


def main(folders):
    found = {}
    open_paths = list(PUBLIC)
    while open_paths:
        path = open_paths.pop()
        if path in found or FOREIGN.match(path):
            continue
        places = [os.path.join(folder, path) for folder in [".", *folders]]
        place = next((place for place in places if os.path.exists(place)), None)
        if place is None:
            sys.exit(f"public_headers.py: {path} is in none of: {', '.join(['.', *folders])}")
        found[path] = place
        with open(place, encoding="utf-8") as file:
            open_paths += re.findall(r'^#include "([^"]+)"', file.read(), re.MULTILINE)
    for path, place in sorted(found.items()):
        print(path, os.path.normpath(place))


main(sys.argv[1:])
