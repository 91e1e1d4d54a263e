#!/usr/bin/env python3
"""Makes a digits model with random weights, and a test set whose answers are computed in float64.

Writes digits.safetensors and digits_test.safetensors. Weights and images are rounded to float32 before the answers are
computed from them; a label is the class of the largest logit. Needs the standard library alone.
"""
import argparse
import json
import pathlib
import random
import struct


def as_float32(values):
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


def linear(x, weight, bias):
    width = len(x)
    return [sum(a * b for a, b in zip(x, weight[i * width : (i + 1) * width])) + bias[i] for i in range(len(bias))]


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'i'}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", default="63-101-37-7", help="of the images, both hidden layers and the answers")
    parser.add_argument("--rows", type=int, default=53, help="images of the test set")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    widths = [int(width) for width in options.widths.split("-")]
    rng = random.Random(options.seed)

    tensors, layers = {}, []
    for number, (width_in, width_out) in enumerate(zip(widths, widths[1:]), start=1):
        limit = (3 / width_in) ** 0.5
        weight = as_float32([rng.uniform(-limit, limit) for _ in range(width_in * width_out)])
        bias = as_float32([rng.uniform(-0.5, 0.5) for _ in range(width_out)])
        layers.append((weight, bias))
        tensors[f"fc{number}.weight"] = ("F32", [width_out, width_in], weight)
        tensors[f"fc{number}.bias"] = ("F32", [width_out], bias)

    images, labels, logits = [], [], []
    for _ in range(options.rows):
        image = as_float32([rng.random() for _ in range(widths[0])])
        x = image
        for number, (weight, bias) in enumerate(layers, start=1):
            x = linear(x, weight, bias)
            if number < len(layers):
                x = [max(value, 0.0) for value in x]
        images += image
        labels.append(x.index(max(x)))
        logits += x

    options.folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(options.folder / "digits.safetensors", tensors)
    write_safetensors(
        options.folder / "digits_test.safetensors",
        {
            "images": ("F32", [options.rows, widths[0]], images),
            "labels": ("I32", [options.rows], labels),
            "logits": ("F32", [options.rows, widths[-1]], logits),
        },
    )


if __name__ == "__main__":
    main()
