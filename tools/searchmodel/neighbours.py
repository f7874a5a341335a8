"""Finds, for the commonest stems of the texts, the stems nearest in meaning.

    python3 neighbours.py --model DIR --texts texts.txt --out neighbours.tsv

A line is a stem, then its neighbours and their similarity in hundredths,
nearest first. A stem's meaning is what the sentence model makes of the word
that stands for it most often.
"""

import argparse
import collections
import pathlib
import re

import numpy as np
import snowballstemmer

from embed import Model

STEMS = 9000
NEIGHBOURS = 8
LEAST = 0.40

# A word, no part of an identifier.
WORD = re.compile(r"(?<![\w.])[A-Z]?[a-z][a-z0-9]+(?![\w])(?!\.\w)")


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def misspelt(word, counts, vocabulary):
    """Whether a word is one letter away from a common one that is much more frequent."""
    if word in vocabulary:
        return False
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    near = {a + b[1:] for a, b in cuts if b} | {a + c + b for a, b in cuts for c in LETTERS}
    near |= {a + c + b[1:] for a, b in cuts if b for c in LETTERS}
    near |= {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    return any(w in vocabulary and counts[w] > 20 * counts[word] for w in near)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    a = parser.parse_args()
    counts = collections.Counter(w.lower() for w in WORD.findall(a.texts.read_text("utf-8")))
    stemmer = snowballstemmer.stemmer("english")
    total, forms = collections.Counter(), collections.defaultdict(collections.Counter)
    for word, n in counts.items():
        stem = stemmer.stemWord(word)
        total[stem] += n
        forms[stem][word] += n
    # Equal counts in the order of the alphabet, here and below.
    model = Model(a.model)
    vocabulary = model.tokenizer.get_vocab()
    stems, words = [], []
    for stem, _ in sorted(total.items(), key=lambda e: (-e[1], e[0])):
        word = min(forms[stem].items(), key=lambda e: (-e[1], e[0]))[0]
        if len(stems) < STEMS and not misspelt(word, counts, vocabulary):
            stems.append(stem)
            words.append(word)
    vectors = model.embed(model.pieces(words))
    lines = []
    for i, stem in enumerate(stems):
        near = np.round(vectors @ vectors[i] * 100).astype(int)
        near[i] = 0
        best = np.argsort(-near, kind="stable")[:NEIGHBOURS]
        lines.append("\t".join([stem] + [f"{stems[j]} {near[j]}" for j in best if near[j] >= LEAST * 100]))
    a.out.write_text("\n".join(sorted(lines)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
