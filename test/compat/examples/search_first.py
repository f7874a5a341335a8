# servers: calendar
from mcp import runtime

for hit in await runtime.search_tool_docs("calendar events", limit=5):
    print(hit["server"], hit["tool"], "-", hit.get("description", ""))
