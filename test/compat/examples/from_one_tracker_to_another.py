# servers: jira, github
# A loop with a condition over two servers, in one call.
for issue in await mcp_jira.search_issues(project="AP", status="Open"):
    whole = await mcp_jira.get_issue(id=issue.id)

    if "bug" in whole.description.lower():
        copy = await mcp_github.create_issue(
            repo="me/app",
            title=f"Bug: {issue.title}",
            body=whole.description,
        )
        print("copied", issue.id, "to", copy.url)
