package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The manual answers under our own name and under the one that clients of the
// first code-execution bridge know.
var capabilityURIs = []string{
	"resource://sallyport/capabilities",
	"resource://mcp-server-code-execution-mode/capabilities",
}

const capabilityManual = `# Code Execution MCP Capabilities

One tool, run_python(code, servers, timeout). The code runs in a sandbox without
network, with a writable /workspace, as an ordinary Python module's top level
does; await works there. Variables, imports and files stay for the next call
until a result says that state was lost. The value of a last expression is
echoed.

## Quick usage

- Find: runtime.discovered_servers() names every configured server,
  runtime.discovered_servers(detailed=True) describes them, and
  await runtime.list_tools('x') lists one server's tools.
- Grant: servers=['x'] in the call, or await runtime.load_server('x') in the code.
- Call: await mcp_x.tool(arg=1), or await mcp_servers['x'].tool(arg=1), or
  from mcp.servers.x import *. A call returns the tool's value and raises when
  the tool fails. await asyncio.gather(...) runs calls side by side.

## Limits

The timeout counts the code's own time, not the time that it waits for tools.
When it is reached the code is interrupted, and killed when it does not stop;
the result says which. cwd of the code is /workspace.
`

func (s *Server) addResources(sdk *mcp.Server) {
	for _, uri := range capabilityURIs {
		sdk.AddResource(&mcp.Resource{
			URI:      uri,
			Name:     "code-execution-capabilities",
			Title:    "Python sandbox manual",
			MIMEType: "text/markdown",
			Size:     int64(len(capabilityManual)) + int64(len("\nResource URI: ")+len(uri)),
		}, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
				URI: uri, MIMEType: "text/markdown", Text: capabilityManual + "\nResource URI: " + uri,
			}}}, nil
		})
	}
}
