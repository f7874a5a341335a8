package app_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/bridge/results"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
)

// alike are ways to write one name, each of which is a name of its own.
var alike = []string{"db_prod", "db-prod", "db prod", "db.prod", "DB_Prod", "ｄｂ_ｐｒｏｄ", "db_prod ", " db_prod",
	"caf" + norm.NFC.String("é"), "caf" + norm.NFD.String("é"), "İ", norm.NFD.String("i̇"), "ﬁle", "file"}

// TestAlikeNames: what the user has decided about a name, and what is kept under
// it, is about no other name. Approvals have a test of their own.
func TestAlikeNames(t *testing.T) {
	for _, own := range alike {
		dir := t.TempDir()
		quoted, _ := json.Marshal(own) // YAML reads it, too
		rules := fmt.Sprintf(`policy: {tools: [
  {server: %[1]s, action: deny}, {server: s, tool: %[1]s, action: deny}, {server: s, prompt: %[1]s, action: deny}, {server: s, resource: %[1]s, action: deny}]}`, quoted)
		path := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		policy := toolpolicy.Open(toolpolicy.Config{Path: path})
		servers := authz.Policy{Servers: []string{own}}
		disabled := upstream.Definition{DenyTools: []string{own}}
		allowed := upstream.Definition{AllowTools: []string{own}}
		cache := results.New(results.Config{Entries: 100, Bytes: 1 << 20})
		book := pins.Open(store.At(filepath.Join(dir, "pins")), slog.New(slog.DiscardHandler))
		listed := func(name string) pins.Listed {
			return pins.Tools([]tool.Tool{{Name: name, InputSchema: tool.AnyObject}})
		}
		seen := bridge.Pinned(upstream.Definition{Name: own})
		if _, err := book.Check(seen, listed(own)); err != nil {
			t.Fatal(err)
		}
		for _, name := range alike {
			s, named := &authz.Server{Name: "s"}, &authz.Server{Name: name}
			me := authz.Local("tests")
			got := map[string]bool{
				"a rule for a server":   policy.DecideCall(me, authz.CallTool{Server: named, Tool: "x"}).Effect == authz.Deny,
				"a rule for a tool":     policy.DecideCall(me, authz.CallTool{Server: s, Tool: name}).Effect == authz.Deny,
				"a rule for a prompt":   policy.DecideCall(me, authz.GetPrompt{Server: s, Prompt: name}).Effect == authz.Deny,
				"a rule for a resource": policy.DecideCall(me, authz.ReadResource{Server: s, URI: name}).Effect == authz.Deny,
				"policy.servers":        slices.ContainsFunc(servers.Servers, func(pattern string) bool { return authz.Matches(pattern, name) }),
				"disabledTools":         !disabled.ToolAllowed(name),
				"enabledTools":          allowed.ToolAllowed(name),
			}
			answer, err := cache.Do(t.Context(), results.Key{Server: "s", Owner: "local", Tool: name}, time.Hour, false, func() (json.RawMessage, bool, error) { return json.RawMessage(quoted), true, nil })
			if err != nil || answer.Kept {
				t.Errorf("%q: a result of another tool was used again: %v", name, err)
			}
			report, err := book.Check(seen, listed(name))
			got["pins of a tool"] = err == nil && len(report.New) == 0
			accepted, _, err := book.Form(bridge.Pinned(upstream.Definition{Name: name}), pins.Tool, own)
			got["pins of a server"] = err == nil && accepted != nil
			for what, is := range got {
				if is != (name == own) {
					t.Errorf("%s %q counts for %q: %v", what, own, name, is)
				}
			}
		}
		cache.Close()
	}
}
