#!/usr/bin/env python3
"""Prints an SVG with images that the generator of examples/gan.cc draws.

    examples/gan_picture.py MODEL.safetensors >digits.svg
"""

import array
import base64
import json
import random
import struct
import sys
import zlib

COLUMNS, ROWS, SIDE = 12, 3, 28


def tensors(path):
    """Returns name -> (shape, values) for the float32 tensors of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: (about["shape"], array.array("f", data[slice(*about["data_offsets"])]))
            for name, about in header.items() if name != "__metadata__"}


def linear(model, layer, inputs):
    (outputs, width), weight = model[f"{layer}.weight"]
    bias = model[f"{layer}.bias"][1]
    return [bias[row] + sum(map(float.__mul__, weight[row * width:(row + 1) * width], inputs))
            for row in range(outputs)]


def draw(model):
    noise = [random.gauss(0, 1) for _ in range(model["generator.0.weight"][0][1])]
    return linear(model, "generator.2", [max(0.0, x) for x in linear(model, "generator.0", noise)])


def png(images):
    # Normalized pixels: the background is below 0, strokes reach 3.
    grey = [bytes(int(255 - 170 * min(max(x, 0), 1.5)) for x in image) for image in images]
    lines = b"".join(b"\0" + b"".join(grey[row * COLUMNS + column][line * SIDE:(line + 1) * SIDE]
                                      for column in range(COLUMNS))
                     for row in range(ROWS) for line in range(SIDE))
    chunks = ((b"IHDR", struct.pack(">2I5B", COLUMNS * SIDE, ROWS * SIDE, 8, 0, 0, 0, 0)),
              (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks)


def main(path):
    random.seed(1)
    model = tensors(path)
    picture = base64.b64encode(png([draw(model) for _ in range(COLUMNS * ROWS)])).decode()
    size = f'width="{2 * COLUMNS * SIDE}" height="{2 * ROWS * SIDE}"'
    print(f'<svg xmlns="http://www.w3.org/2000/svg" {size}><image {size} href="data:image/png;base64,{picture}"/></svg>')


main(sys.argv[1])
