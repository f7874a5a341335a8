"""A script whose tool calls fail, two of them caught, the third not."""

from mcp import runtime

fs = mcp_servers["filesystem"]

try:
    await fs.read_text_file(path="texts/there-is-no-such-file.txt")
except runtime.MCPError as e:
    print("caught:", str(e).splitlines()[0][:120])

try:
    await fs.read_text_file(path="/etc/shadow")
except runtime.MCPError as e:
    print("caught:", str(e).splitlines()[0][:120])

numbers = [3, 1, 2]
print("now one that nobody catches")
numbers[7]
