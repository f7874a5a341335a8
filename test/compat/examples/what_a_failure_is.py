# servers: filesystem
try:
    await mcp_filesystem.read_file(path="/etc/nothing")
except Exception as error:
    print(type(error).__name__, "-", error)

raw = await runtime.call_tool("filesystem", "read_file", {"path": "/etc/nothing"})
print(raw["isError"], raw["content"][0]["text"])
