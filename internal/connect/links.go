package connect

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"

	"encoding/json"
)

// Linked lists the clients that a link can connect.
var Linked = []string{"vscode", "cursor", "goose"}

// Link returns a link that makes a client offer to add Sallyport. It names the
// program without a path, because it is made for other machines, too.
func Link(client, command string) (string, error) {
	entry := struct {
		Name    string   `json:"name,omitempty"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}{Command: command, Args: []string{"serve"}}
	text, err := json.Marshal(entry)
	if err != nil {
		return "", err
	}
	switch client {
	case "vscode":
		return "https://insiders.vscode.dev/redirect/mcp/install?name=sallyport&config=" + url.QueryEscape(string(text)), nil
	case "cursor":
		return "cursor://anysphere.cursor-deeplink/mcp/install?name=sallyport&config=" + url.QueryEscape(base64.StdEncoding.EncodeToString(text)), nil
	case "goose":
		return "goose://extension?cmd=" + url.QueryEscape(command) + "&arg=serve&id=sallyport&name=Sallyport&description=" +
			strings.ReplaceAll(url.QueryEscape("Python in a sandbox, with every MCP server as a module"), "+", "%20"), nil
	}
	return "", fmt.Errorf("there is no link for %q; there are links for: %s", client, strings.Join(Linked, ", "))
}
