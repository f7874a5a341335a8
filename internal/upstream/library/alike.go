package library

import (
	"fmt"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// warnOfAliases adds a warning for each server that is not the user's own but
// has the alias of one that is: once the user agrees to it, mcp_<alias> means
// that server, or is an error. It does not where the alias is the user's
// server's own name, which no other server can have.
func (s *Snapshot) warnOfAliases() {
	own := map[string]string{} // alias -> the server that has that name, or one that does not
	for _, d := range s.Definitions {
		if alias := tool.ServerAlias(d.Name); !foreign(&d) && !d.Disabled && (own[alias] == "" || alias == d.Name) {
			own[alias] = d.Name
		}
	}
	for _, d := range s.Definitions {
		alias := tool.ServerAlias(d.Name)
		name := own[alias]
		if !foreign(&d) || name == "" || name == alias {
			continue
		}
		s.Problems = append(s.Problems, definitions.Problem{File: d.File, Line: d.Line, Server: d.Name, Warning: true,
			Reason: fmt.Sprintf("mcp_%s, which is your server %q now, would mean this one as well: then write mcp_servers[%s] for yours", alias, name, tool.PythonString(name))})
	}
}

// foreign reports whether a definition is not the user's own: a project's, or
// one that code asked for.
func foreign(d *Definition) bool {
	return d.Offer != "" || d.Source == definitions.NameProject || d.Source == definitions.NameRequested
}
