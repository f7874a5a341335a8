"""Packs vectors and neighbours into the files that the executable carries.

    python3 pack.py --model DIR --vectors fitted.npz --neighbours neighbours.tsv --to internal/toolbox/search

Writes vectors/table.bin and neighbours.bin there; the forms are described
beside the Go code that reads them.
"""

import argparse
import pathlib
import struct

import numpy as np

NEIGHBOURS = 8


def text(items):
    """Where each item ends, and all of them one after the other."""
    raw = [s.encode() for s in items]
    ends = np.cumsum([0] + [len(r) for r in raw])
    return ends.astype("<u4").tobytes(), b"".join(raw)


SLOTS = 1 << 16


def slots(pieces):
    """Where each piece stands, by its FNV-1a hash: its row plus one, or 0."""
    out = np.zeros(SLOTS, "<u2")
    for row, piece in enumerate(pieces):
        at = 2166136261
        for byte in piece.encode():
            at = (at ^ byte) * 16777619 & 0xffffffff
        while out[at % SLOTS]:
            at += 1
        out[at % SLOTS] = row + 1
    return out.tobytes()


def table(pieces, vectors, counts):
    keep = [i for i, p in enumerate(pieces) if not p.startswith("[") or p in ("[", "[UNK]")]
    # The commonest first: a process needs few pages of the file then.
    keep.sort(key=lambda i: (-counts[i], i))
    vectors = vectors[keep]
    most = np.abs(vectors).max(1, keepdims=True)
    numbers = np.round(vectors / np.maximum(most, 1e-12) * 7).astype(np.int8) + 8
    # The largest scale is 65535; what counts is how they compare.
    scales = np.maximum(np.round(most[:, 0] / most.max() * 65535), 1).astype("<u2")
    halves = (numbers[:, 0::2] | numbers[:, 1::2] << 4).astype(np.uint8)
    pieces = [pieces[i] for i in keep]
    ends, words = text(pieces)
    return struct.pack("<I", len(keep)) + ends + slots(pieces) + scales.tobytes() + halves.tobytes() + words


def neighbours(lines):
    rows = sorted((line.split("\t") for line in lines), key=lambda r: r[0].encode())
    place = {r[0]: i for i, r in enumerate(rows)}
    near = np.full((len(rows), NEIGHBOURS), 0xffff, "<u2")
    like = np.zeros((len(rows), NEIGHBOURS), np.uint8)
    for i, row in enumerate(rows):
        for j, one in enumerate(row[1:]):
            word, value = one.split(" ")
            near[i, j], like[i, j] = place[word], int(value)
    ends, words = text([r[0] for r in rows])
    return struct.pack("<I", len(rows)) + ends + near.tobytes() + like.tobytes() + words


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--vectors", type=pathlib.Path, required=True)
    parser.add_argument("--neighbours", type=pathlib.Path, required=True)
    parser.add_argument("--to", type=pathlib.Path, required=True)
    a = parser.parse_args()
    fitted = np.load(a.vectors)
    pieces = (a.model / "vocab.txt").read_text("utf-8").split("\n")[:30522]
    (a.to / "vectors" / "table.bin").write_bytes(table(pieces, fitted["vectors"], fitted["counts"]))
    (a.to / "neighbours.bin").write_bytes(neighbours(a.neighbours.read_text("utf-8").splitlines()))


if __name__ == "__main__":
    main()
