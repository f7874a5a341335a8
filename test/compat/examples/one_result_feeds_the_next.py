# servers: filesystem, search, github
# Members of a result are attributes.
notes = await mcp_filesystem.read_file(path="/tmp/plan.txt")
found = await mcp_search.search(query=notes.split(":")[0])
made = await mcp_github.create_issue(repo="me/garden", title=found.title)
print(made.number, made["title"], made.get("body", "without a body"))
