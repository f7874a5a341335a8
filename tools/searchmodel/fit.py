"""Fits one vector per word piece to the sentence model's vectors of texts.

    python3 fit.py --vectors DIR --out fitted.npz

DIR of --vectors is what embed.py wrote. The vector of a text is the sum of its
pieces' vectors over the number of pieces to the power 0.4. Ridge regression by
conjugate gradients, towards what the pieces mean alone: a piece that stands in
no text keeps that. Then the directions in which texts differ most are kept.
"""

import argparse
import pathlib

import numpy as np
from scipy import sparse

POWER = 0.4
RIDGE = 1.0
STEPS = 40
WIDTH = 256


def load(folder):
    """The texts as a sparse matrix of pieces, their vectors, and how often each piece stands in them."""
    flat, lengths, vectors = [], [], []
    for file in sorted(folder.glob("[0-9]*.npz")):
        if ".part" in file.name:
            continue
        part = np.load(file)
        flat.append(part["pieces"])
        lengths.append(part["lengths"])
        vectors.append(part["vectors"])
    flat, lengths = np.concatenate(flat), np.concatenate(lengths)
    vectors = np.concatenate(vectors).astype(np.float32)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    weight = (1 / lengths.clip(1) ** POWER).astype(np.float32)
    m = sparse.csr_matrix((weight[rows], (rows, flat)), shape=(len(lengths), 30522), dtype=np.float32)
    return m, vectors, np.bincount(flat, minlength=30522)


def solve(m, y, start, ridge=RIDGE, steps=STEPS):
    """x of least |m x - y|^2 + ridge |x - start|^2, by conjugate gradients."""
    mt = m.T.tocsr()
    d = np.zeros_like(start)
    r = mt @ (y - m @ start)
    p, rr = r.copy(), (r * r).sum(0)
    for step in range(steps):
        q = mt @ (m @ p) + ridge * p
        a = rr / np.maximum((p * q).sum(0), 1e-12)
        d += a * p
        r -= a * q
        new = (r * r).sum(0)
        p = r + (new / np.maximum(rr, 1e-12)) * p
        rr = new
    return start + d


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectors", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    a = parser.parse_args()
    m, y, counts = load(a.vectors)
    held = np.arange(len(y)) % 50 == 0
    alone = np.load(a.vectors / "alone.npy").astype(np.float32)
    fit = solve(m[~held], y[~held], alone)

    def near(x):
        t = m[held] @ x
        return float(((t * y[held]).sum(1) / np.maximum(np.linalg.norm(t, axis=1), 1e-9)).mean())
    print(f"{len(y)} texts; mean cosine of texts held out: alone {near(alone):.3f}, fitted {near(fit):.3f}")
    texts = m @ fit
    values, directions = np.linalg.eigh(texts.T @ texts)
    keep = directions[:, ::-1][:, :WIDTH]
    print(f"{WIDTH} directions keep {values[::-1][:WIDTH].sum() / values.sum():.4f}")
    np.savez(a.out, vectors=(fit @ keep).astype(np.float32), counts=counts)


if __name__ == "__main__":
    main()
