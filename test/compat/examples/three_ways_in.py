# servers: server, server-name
mcp_servers["server"]
mcp_server_name
from mcp.servers.server import *

print(await mcp_servers["server"].ping(), await mcp_server_name.ping(), await ping())
