# Third call: what the server gave is kept. The call names no server: its first use
# loads it, where the user's policy allows that.
couplets = {name: tuple(words[-2:]) for name, words in sorted(rhymes.items())}
for name, (a, b) in couplets.items():
    print(f"{name:6} {a} / {b}")
listing = await mcp_filesystem.list_directory(path="texts")
print("files:", listing.count("[FILE]"))
