# servers: jira
# Calls that do not depend on each other.
import asyncio

both = await asyncio.gather(*(mcp_jira.get_issue(id=key) for key in ("AP-2", "AP-1")))
print([issue.title for issue in both])
