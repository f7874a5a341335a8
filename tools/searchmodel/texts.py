"""Collects the short general texts that the vectors are fitted to.

    python3 texts.py --sources DIR --gomod DIR --out texts.txt

DIR of --sources holds clones of the repositories named in SOURCES, under these
names; --gomod is a Go module cache with the modules of MODULES. What is taken, from where, and
under which licence is in README.md. Which texts are taken of a source that has
more than its share is decided by their SHA-256: the same sources give the same
file.
"""

import argparse
import csv
import hashlib
import io
import json
import pathlib
import re
import subprocess

# name -> commit. A clone may be bare.
SOURCES = {
    "english-wordnet": "d94538ad0df3d7a4c77837bde6af69d7a6592c32",
    "tldr": "08e345f42639f67d99282813247ac670dc6e87cb",
    "public-apis": "c045a2eb505f0f8b7992bb4af53cc020f25003fd",
    "oos-eval": "828f8093932c8fe6ca7936c3d2e52903b1c523de",
    "NLU-Evaluation-Data": "f6071b496b17d71e6eb43f543af0707f4ff30557",
    "nlu-benchmark": "b86ac7f1577868c42158d0dec77db50956046696",
    "task-specific-datasets": "57ec275d8078af65b7731c2a98be812d844a6d6b",
}

MODULES = [
    "google.golang.org/api@v0.259.0",
    "github.com/aws/aws-sdk-go@v1.55.8",
    "github.com/stripe/stripe-go/v82@v82.5.1",
    "github.com/twilio/twilio-go@v1.31.0",
    "github.com/slack-go/slack@v0.35.0",
]


class Repository:
    """Files of one commit of a clone."""

    def __init__(self, folder, name):
        self.commit = SOURCES[name]
        self.git = ["git", "-C", str(folder / name)]

    def names(self, pattern):
        out = subprocess.run(self.git + ["ls-tree", "-r", "--name-only", "-z", self.commit],
                             check=True, capture_output=True).stdout.decode()
        return [n for n in out.split("\0") if re.fullmatch(pattern, n)]

    def read(self, *names):
        """Yields the texts of the named files."""
        ask = "".join(f"{self.commit}:{n}\n" for n in names).encode()
        out = io.BytesIO(subprocess.run(self.git + ["cat-file", "--batch"], input=ask,
                                        check=True, capture_output=True).stdout)
        for _ in names:
            size = int(out.readline().split()[2])
            yield out.read(size).decode("utf-8", "replace")
            out.read(1)


def wordnet(repo):
    """Definitions, examples and names of the Open English WordNet."""
    definitions, examples, names = [], [], []
    for text in repo.read(*repo.names(r"src/yaml/(noun|verb|adj|adv)\..*\.yaml")):
        key, item = "", None
        for line in text.splitlines() + [""]:
            head = re.match(r"  (\w+):", line)
            if head or not line.startswith("  "):
                if item is not None:
                    (definitions if key == "definition" else examples if key == "example" else names).append(item)
                item, key = None, head.group(1) if head else ""
            elif key in ("definition", "example", "members") and line.startswith("  - "):
                if item is not None:
                    (definitions if key == "definition" else examples if key == "example" else names).append(item)
                item = line[4:]
            elif item is not None and line.startswith("    "):
                item += " " + line.strip()
    clean = lambda s: s.strip("'\"").replace("''", "'")
    return ([clean(s) for s in definitions], [clean(s) for s in examples if "text:" not in s],
            [clean(s) for s in names])


def tldr(repo):
    out = []
    for page in repo.read(*repo.names(r"pages/(common|linux|osx|windows)/.*\.md")):
        for line in page.splitlines():
            if line.startswith("> ") and "More information" not in line and "See also" not in line:
                out.append(line[2:])
            elif line.startswith("- "):
                out.append(re.sub(r"\[(\w+)\]", r"\1", line[2:]).rstrip(":"))
    return [s.replace("`", "") for s in out]


def apis(repo):
    out = []
    for line in next(repo.read("README.md")).splitlines():
        row = re.match(r"\| \[(.+?)\]\(.*?\) \| (.+?) \|", line)
        if row:
            out += [row.group(2), f"{row.group(1)}: {row.group(2)}"]
    return out


def requests(folder):
    """What people ask assistants for, from sets for intent classification."""
    out = []
    full = json.loads(next(Repository(folder, "oos-eval").read("data/data_full.json")))
    out += [row[0] for part in full.values() for row in part]

    repo = Repository(folder, "NLU-Evaluation-Data")
    for text in repo.read(*repo.names(r".*/testset/annotated/.*\.json")):
        out += [row["text"] for row in json.loads(text)["test_data_annotation"]]

    repo = Repository(folder, "nlu-benchmark")
    for text in repo.read(*repo.names(r"2017-06.*/train_\w+_full\.json")):
        for rows in json.loads(text).values():
            out += ["".join(part["text"] for part in row["data"]) for row in rows]

    repo = Repository(folder, "task-specific-datasets")
    for text in repo.read("banking_data/train.csv", "banking_data/test.csv"):
        out += [row[0] for row in csv.reader(io.StringIO(text))]
    return out


def split(name):
    """"ListBuckets" as "list buckets"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", " ", name).lower()


def comments(cache):
    """First sentences of the doc comments of functions and fields."""
    out = []
    for module in MODULES:
        for path in sorted((cache / module).rglob("*.go")):
            if path.name.endswith("_test.go"):
                continue
            block = []
            for line in path.read_text("utf-8", "replace").splitlines():
                line = line.strip()
                if line.startswith("//"):
                    block.append(line[2:].strip())
                    continue
                what = re.match(r"func (?:\([^)]*\) )?([A-Z]\w+)|([A-Z]\w+)\s+[\w\[\]*.]+(?:\s+`|$)", line)
                if block and what:
                    name = what.group(1) or what.group(2)
                    text = " ".join(block)
                    text = re.sub(r"^\w+ API operation for [^.]*\.\s*", "", text)
                    text = re.sub(rf"^{name}: ", "", text)
                    text = re.split(r"(?<=[a-z)])\.(?:\s|$)", text)[0]
                    out += [text, split(name) + ": " + text]
                block = []
    return out


def share(texts, limit):
    """The texts that can be used, each once, at most limit of them."""
    good = {}
    for text in texts:
        text = " ".join(text.split())
        letters = sum(c.isascii() and (c.isalpha() or c == " ") for c in text)
        if 3 <= len(text) <= 240 and letters >= 0.8 * len(text) and "http" not in text:
            good[hashlib.sha256(text.encode()).digest()] = text
    return [good[k] for k in sorted(good)[:limit]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sources", type=pathlib.Path, required=True)
    parser.add_argument("--gomod", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    a = parser.parse_args()

    definitions, examples, names = wordnet(Repository(a.sources, "english-wordnet"))
    parts = {
        "definitions": share(definitions, 50_000),
        "examples": share(examples, 20_000),
        "names": share(names, 25_000),
        "commands": share(tldr(Repository(a.sources, "tldr")), 25_000),
        "interfaces": share(apis(Repository(a.sources, "public-apis")), 4_000),
        "requests": share(requests(a.sources), 70_000),
        "comments": share(comments(a.gomod), 60_000),
    }
    texts = set()
    for name, part in parts.items():
        print(f"{name}: {len(part)}")
        texts.update(part)
    # In the order of their hashes, so that any beginning of the file is a
    # sample of the whole.
    texts = sorted(texts, key=lambda t: hashlib.sha256(b"order" + t.encode()).digest())
    a.out.write_text("\n".join(texts) + "\n", "utf-8")
    print(f"{len(texts)} texts")


if __name__ == "__main__":
    main()
