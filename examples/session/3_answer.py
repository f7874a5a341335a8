# Third call: no server is granted any more; what it gave is kept.
couplets = {name: tuple(words[-2:]) for name, words in sorted(rhymes.items())}
for name, (a, b) in couplets.items():
    print(f"{name:6} {a} / {b}")
try:
    await mcp_filesystem.list_directory(path="texts")
except Exception as e:
    print("the grant ended with its call:", type(e).__name__)
