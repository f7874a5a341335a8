# servers: stub
from mcp import runtime

print("there are:", "stub" in runtime.discovered_servers(), len(runtime.discovered_servers()))
print("loaded:", runtime.list_servers_sync(), await runtime.list_servers())

known = runtime.list_loaded_server_metadata()
if known:
    one = runtime.describe_server(known[0]["name"])
    print(one == known[0], [(tool["alias"], tool.get("description", "")) for tool in one["tools"]])

    short = await runtime.query_tool_docs(known[0]["name"])
    long = await runtime.query_tool_docs(known[0]["name"], tool=short[0]["toolAlias"], detail="full")
    print(short == runtime.query_tool_docs_sync(known[0]["name"]), long["inputSchema"]["required"])
    print(runtime.list_tools_sync(known[0]["name"])[0]["input_schema"] == long["inputSchema"])

print(len(runtime.search_tool_docs_sync("calendar")) >= 1)
print(runtime.capability_summary().splitlines()[0])
