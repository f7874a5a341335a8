# Second call: sonnets is still there, and so is the import.
lines = {name: poem.splitlines() for name, poem in sonnets.items()}
assert all(len(v) == 14 for v in lines.values()), {k: len(v) for k, v in lines.items()}


def last_word(line):
    return re.findall(r"[\w']+", line)[-1].lower()


rhymes = {name: [last_word(line) for line in poem] for name, poem in lines.items()}
rhymes["XVIII"][:4]
