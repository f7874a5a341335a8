"""Reads a folder of texts through the filesystem server, ranks their words,
and writes a report back through it.

Runs inside the sandbox, which sees no file of the host: every byte comes and
goes through the server that was granted.
"""

import asyncio
import collections
import re

FOLDER = "texts"
REPORT = "out/word_ranking.md"

fs = mcp_servers["filesystem"]
everything = mcp_servers["everything"]

listing = await fs.list_directory(path=FOLDER)
names = sorted(re.findall(r"^\[FILE\] (.+\.txt)$", listing, re.MULTILINE))
texts = await asyncio.gather(*(fs.read_text_file(path=f"{FOLDER}/{name}") for name in names))

words = collections.Counter()
rows = []
for name, text in zip(names, texts):
    found = re.findall(r"[^\W\d_]{4,}", text.lower())
    words.update(found)
    rows.append((name, len(found), len(set(found))))

# Sums of pairs, added up by the everything server: any other tool would do.
total = 0
for _, count, _ in rows:
    answer = await everything.get_sum(a=total, b=count)
    total = int(re.search(r"is (\d+)", answer).group(1))
assert total == sum(words.values()), (total, sum(words.values()))

report = ["# Words of four letters and more", "", "| file | words | different |", "|---|---:|---:|"]
report += [f"| {name} | {count} | {different} |" for name, count, different in rows]
report += ["", f"{total} words in {len(names)} files. The twenty most frequent:", ""]
report += [f"{rank}. {word} ({count})" for rank, (word, count) in enumerate(words.most_common(20), 1)]

await fs.create_directory(path="out")
await fs.write_file(path=REPORT, content="\n".join(report) + "\n")

# Read it back through the server: what was written is what counts.
written = await fs.read_text_file(path=REPORT)
assert written.splitlines()[0] == report[0]
print(f"{total} words in {len(names)} files; the first five:")
for word, count in words.most_common(5):
    print(f"{count:6} {word}")
print(f"report: {REPORT}, {len(written)} characters")
