package bridge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
)

// maxServersFound bounds an answer.
const maxServersFound = 50

// serverFound is a server as find_servers describes it.
type serverFound struct {
	Name        string `json:"name"`
	Alias       string `json:"alias,omitempty"`
	Description string `json:"description,omitempty"`
	// State is ready, disabled, offered, changed or requested.
	State string `json:"state"`
	// How says how to use it.
	How string `json:"how"`
}

// wayTo returns how code gets to a server, or how the user enables it first.
func wayTo(s *authz.Server) string {
	return cmp.Or(s.Remedy(), fmt.Sprintf("await runtime.load_server(%q)", s.Name))
}

// findServers answers with the servers whose name and description contain all
// words of the query, those with more of them in the name first: configured
// ones that the policy allows, those that projects offer, disabled ones and
// requested ones.
func (x *Execution) findServers(raw json.RawMessage) (json.RawMessage, error) {
	p, err := parseDocsParams(raw)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(strings.ToLower(clip(p.Query, 1000)))
	b := x.bridge
	var all []serverFound
	v := b.current(false)
	for _, d := range v.servers {
		facts := v.facts[d.Name]
		if !b.config.Gate.Visible(x.principal, authz.FindServer{Server: facts}) {
			continue
		}
		f := serverFound{Name: d.Name, Alias: d.Alias, State: d.State(), How: wayTo(facts)}
		if d.Offer == "" { // no user has vouched yet for a project's definition
			f.Description = clip(invisible.Strip(d.Description), 1000)
		}
		all = append(all, f)
	}
	if r, ok := b.config.Source.(Requester); ok {
		for _, name := range r.Requested() {
			if _, configured := v.servers[name]; !configured {
				all = append(all, serverFound{Name: name, State: "requested",
					How: "it was asked for; the user can look at it and grant it: sallyport servers approve " + terminal.ShellWord(name)})
			}
		}
	}
	type hit struct {
		serverFound
		inName int
	}
	hits := make([]hit, 0, len(all))
next:
	for _, f := range all {
		name := strings.ToLower(f.Name + " " + f.Alias)
		text := name + " " + strings.ToLower(f.Description)
		inName := 0
		for _, w := range words {
			if !strings.Contains(text, w) {
				continue next
			}
			if strings.Contains(name, w) {
				inName++
			}
		}
		hits = append(hits, hit{f, inName})
	}
	slices.SortFunc(hits, func(a, b hit) int {
		if c := cmp.Compare(b.inName, a.inName); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	found := make([]serverFound, 0, min(len(hits), maxServersFound))
	for _, h := range hits[:min(len(hits), maxServersFound)] {
		found = append(found, h.serverFound)
	}
	return json.Marshal(found)
}
