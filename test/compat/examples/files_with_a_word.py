# servers: filesystem
# A server's list is a list, and a file's text is a string.
names = await mcp_filesystem.list_directory(path="/tmp")

for name in names:
    words = await mcp_filesystem.read_file(path=name)
    if "TODO" in words:
        print("open work in", name)
