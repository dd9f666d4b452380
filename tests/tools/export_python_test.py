"""Reads the files that psctl exported and the servers wrote, as users do.

Expects model.safetensors, checkpoints/ and expected.json (name: shape and values) in the given
folder. Debian does not package the safetensors library, so this test parses these files by the public
format definition.
"""

import glob
import json
import os
import struct
import sys


def read_safetensors(path):
    """Returns name: (dtype, shape, bytes). Checks the file as the library does."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length].decode("utf-8"))
    assert data[8:9] == b"{"
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values())
    body = data[8 + length :]
    end = 0
    tensors = {}
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = tensor["data_offsets"]
        size = {"F32": 4, "I64": 8}[tensor["dtype"]]
        assert begin == end, f"{name} begins at {begin}, not {end}"
        assert begin % size == 0, f"{name} is not aligned"
        count = 1
        for dimension in tensor["shape"]:
            count *= dimension
        assert stop - begin == count * size, name
        tensors[name] = (tensor["dtype"], tensor["shape"], body[begin:stop])
        end = stop
    assert end == len(body)
    return metadata, tensors


def main(folder):
    with open(os.path.join(folder, "expected.json"), encoding="utf-8") as file:
        expected = json.load(file)

    metadata, tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
    assert metadata["format"] == "pt", metadata
    assert list(tensors) == list(expected), list(tensors)
    for name, (dtype, shape, data) in tensors.items():
        assert dtype == "F32" and shape == expected[name]["shape"], name
        assert list(struct.unpack(f"<{len(data) // 4}f", data)) == expected[name]["values"], name

    shards = glob.glob(os.path.join(folder, "checkpoints", "*", "*.safetensors"))
    assert len(shards) == 3, shards
    for shard in shards:
        metadata, tensors = read_safetensors(shard)
        assert metadata["format"] == "torchps shard", metadata
        assert "versions" in tensors and tensors["ledger"][1][1] == 9

    manifests = glob.glob(os.path.join(folder, "checkpoints", "*", "MANIFEST.json"))
    with open(manifests[0], encoding="utf-8") as file:
        assert json.load(file)["manifest"]["server_count"] == 3
    print(f"{len(expected)} tensors as expected")


main(sys.argv[1])
