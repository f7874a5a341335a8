package toolpolicy

import (
	"encoding/json"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// A Case is a call with the decision that is expected of it.
type Case struct {
	Line      int
	Action    authz.Action
	Principal authz.Principal
	Want      string // "allow", "deny" or "ask"
	Rule      string // as denials have it; empty for any
}

var caseKeys = []string{"server", "tool", "resource", "prompt", "args", "annotations", "session", "client", "want", "rule"}

// ReadCases reads a file of cases, a list.
func ReadCases(path string, content []byte) ([]Case, []settings.Problem) {
	body, wrong := settings.ParseYAML(path, content)
	if wrong != nil {
		return nil, []settings.Problem{*wrong}
	}
	r := &reader{&loading{}, path, short(path)}
	list, ok := body.(*ast.SequenceNode)
	if !ok {
		r.problem(settings.LineOf(body), "%s stands where a list of cases is expected: write - server: NAME, and tool and want under it", settings.DescribeNode(body))
		return nil, r.problems
	}
	var out []Case
	for _, item := range list.Values {
		out = append(out, r.expected(item))
	}
	return out, r.problems
}

func (r *reader) expected(n ast.Node) Case {
	out := Case{Line: settings.LineOf(n), Principal: authz.Local("")}
	if pairs := settings.PairsOf(n); len(pairs) > 0 {
		out.Line = settings.LineOf(pairs[0].Key)
	}
	call, uri, prompt := authz.CallTool{Server: &authz.Server{}}, "", ""
	r.section(n, "a case", caseKeys, func(name string, p *ast.MappingValueNode) {
		switch name {
		case "server":
			call.Server.Name = r.text(p, maxText)
		case "tool":
			call.Tool = r.text(p, maxText)
		case "resource":
			uri = r.text(p, maxText)
		case "prompt":
			prompt = r.text(p, maxText)
		case "session":
			out.Principal.Session = r.text(p, maxText)
		case "client":
			out.Principal.Client = r.text(p, maxText)
		case "want":
			out.Want = r.choice(p, "want", actions...)
		case "rule":
			out.Rule = r.text(p, maxText)
		case "args":
			var args map[string]any
			if err := yaml.NodeToValue(p.Value, &args); err != nil {
				r.problem(settings.LineOf(p.Key), "args: %s stands where a section is expected", settings.DescribeNode(p.Value))
				return
			}
			raw, err := json.Marshal(args)
			if err != nil {
				r.problem(settings.LineOf(p.Key), "args: %v", err)
			}
			call.Arguments = raw
		case "annotations":
			has := map[string]bool{"destructive": true, "openWorld": true}
			r.section(p.Value, "annotations", annotations, func(name string, p *ast.MappingValueNode) { has[name] = r.truth(p) })
			call.Annotations = tool.Annotations{ReadOnly: has["readOnly"], NonDestructive: !has["destructive"], Idempotent: has["idempotent"], ClosedWorld: !has["openWorld"]}
		}
	})
	kinds := 0
	for _, name := range []string{call.Tool, uri, prompt} {
		if name != "" {
			kinds++
		}
	}
	switch {
	case call.Server.Name == "" || out.Want == "":
		r.problem(out.Line, "a case needs a server and what to want: allow, deny or ask")
	case kinds != 1:
		r.problem(out.Line, "a case needs a tool, a resource or a prompt, and one of them only")
	}
	switch {
	case uri != "":
		out.Action = authz.ReadResource{Server: call.Server, URI: uri}
	case prompt != "":
		out.Action = authz.GetPrompt{Server: call.Server, Prompt: prompt}
	default:
		out.Action = call
	}
	return out
}
