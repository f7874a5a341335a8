package toolpolicy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/settings"
)

// Bounds of what is read.
const (
	maxFile     = 256 << 10
	maxFiles    = 200
	maxRules    = 5000
	maxProblems = 50
	maxText     = 500 // bytes of a name, a pattern, a reason
)

// loading collects the rules of all files.
type loading struct {
	rules    []*Rule
	names    map[string]*Rule
	problems []settings.Problem
	profile  string // of the configuration file
	profiled int    // its line
}

// reader reads one file.
type reader struct {
	*loading
	path, short string
}

func (l *loading) add(p settings.Problem) {
	if len(l.problems) < maxProblems {
		p.Message = strings.ReplaceAll(p.Message, "\n", " ")
		l.problems = append(l.problems, p)
	}
}

// wrong adds a problem of a file as a whole.
func (l *loading) wrong(path, format string, args ...any) {
	l.add(settings.Problem{File: path, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) problem(line int, format string, args ...any) {
	r.add(settings.Problem{File: r.path, Line: line, Message: fmt.Sprintf(format, args...)})
}

// main reads what the configuration file says about calls. Whether it is YAML, and
// all else that it says, settings.CheckFile checks.
func (r *reader) main(content []byte) {
	if body, wrong := settings.ParseYAML(r.path, content); wrong == nil {
		r.find("", body, map[string]int{})
	}
}

// find looks for the keys of the policy for calls, also in keys with dots.
func (r *reader) find(section string, n ast.Node, seen map[string]int) {
	for _, p := range settings.PairsOf(n) {
		name := nameOf(p)
		if section != "" {
			name = section + "." + name
		}
		switch name {
		case "policy":
			r.find(name, p.Value, seen)
		case settings.RulesKey, "policy.profile":
			if before := seen[name]; before > 0 {
				r.problem(settings.LineOf(p.Key), "%s is already set, in line %d", name, before)
				continue
			}
			seen[name] = settings.LineOf(p.Key)
			if name == settings.RulesKey {
				r.list(p.Value)
			} else {
				text := strings.ToLower(r.text(p, maxText)) // as the settings read it
				r.profile, r.profiled = r.among(p, "policy.profile", text, settings.Profiles), settings.LineOf(p.Key)
			}
		}
	}
}

// extra reads a file of rules.
func (r *reader) extra(content []byte) {
	body, wrong := settings.ParseYAML(r.path, content)
	switch {
	case wrong != nil:
		r.add(*wrong)
	case body == nil && len(content) == 0:
		r.problem(0, "it is empty: write a list of rules, or remove the file")
	case body != nil:
		r.list(body)
	}
}

func (r *reader) list(n ast.Node) {
	switch v := n.(type) {
	case nil, *ast.NullNode:
	case *ast.SequenceNode:
		for _, item := range v.Values {
			if len(r.rules) == maxRules {
				r.problem(settings.LineOf(item), "there are more than %d rules", maxRules)
				return
			}
			r.rule(item)
		}
	default:
		r.problem(settings.LineOf(n), "%s stands where a list of rules is expected: write - server: NAME, and further keys under it", settings.DescribeNode(n))
	}
}

func nameOf(p *ast.MappingValueNode) string {
	name, _ := settings.KeyOf(p.Key)
	return name
}

// section reads a section: each of its keys is given to one of these functions.
func (r *reader) section(n ast.Node, what string, keys []string, read func(name string, p *ast.MappingValueNode)) {
	pairs := settings.PairsOf(n)
	if pairs == nil {
		r.problem(settings.LineOf(n), "%s stands where %s is expected: write its keys (%s)", settings.DescribeNode(n), what, strings.Join(keys, ", "))
		return
	}
	seen := map[string]bool{}
	for _, p := range pairs {
		name, line := nameOf(p), settings.LineOf(p.Key)
		switch {
		case !slices.Contains(keys, name):
			r.problem(line, "%s has no key %s%s", what, quote(name), nearest(name, keys))
		case seen[name]:
			r.problem(line, "%s is already set", name)
		default:
			seen[name] = true
			read(name, p)
		}
	}
}

// nearest ends a message about an unknown word.
func nearest(name string, words []string) string {
	best, near := settings.Nearest(name, words, ".")
	if !near {
		return fmt.Sprintf("; it has %s (the nearest is %s)", strings.Join(words, ", "), best)
	}
	return "; did you mean " + best + "?"
}

func quote(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "…"
	}
	return strconv.Quote(s)
}

// The keys of rules and of their sections.
var (
	ruleKeys   = []string{"name", "server", "tool", "resource", "prompt", "session", "client", "annotations", "if", "action", "because", "limits", "cache", "audit"}
	limitKeys  = []string{"perExecution", "perMinute", "inFlight", "argumentBytes", "resultBytes", "time"}
	cacheKeys  = []string{"for", "force"}
	auditKeys  = []string{"arguments"}
	actions    = []string{"allow", "deny", "ask"}
	auditModes = []string{authz.AuditComplete, authz.AuditHash, authz.AuditOmit}
)

func (r *reader) rule(n ast.Node) {
	out := &Rule{File: r.path, short: r.short, Line: settings.LineOf(n)}
	if pairs := settings.PairsOf(n); len(pairs) > 0 {
		out.Line = settings.LineOf(pairs[0].Key)
	}
	before, has := len(r.problems), map[string]bool{}
	r.section(n, "a rule", ruleKeys, func(name string, p *ast.MappingValueNode) {
		has[name] = true
		for _, k := range out.keys() {
			if k.name == name {
				*k.list = r.patterns(p)
			}
		}
		switch name {
		case "name":
			out.Name = r.text(p, maxText)
		case "because":
			out.Because = r.text(p, maxText)
		case "action":
			out.Action = r.choice(p, "action", actions...)
		case "annotations":
			out.Annotations = map[string]bool{}
			r.section(p.Value, "annotations", annotations, func(name string, p *ast.MappingValueNode) {
				out.Annotations[name] = r.truth(p)
			})
		case "if":
			r.condition(out, p)
		case "limits":
			r.limits(out, p)
		case "cache":
			r.cache(out, p)
		case "audit":
			r.section(p.Value, "audit", auditKeys, func(_ string, p *ast.MappingValueNode) {
				out.Audit = r.choice(p, "arguments", auditModes...)
			})
		}
	})
	if len(r.problems) > before {
		return
	}
	others := has["resource"] || has["prompt"]
	switch {
	case !has["action"]:
		r.problem(out.Line, "the rule has no action: write action: allow, deny or ask")
	case has["resource"] && has["prompt"] || others && has["tool"]:
		r.problem(out.Line, "a rule is about tools, resources or prompts: write one rule for each")
	case others && (has["annotations"] || has["if"] || has["cache"]):
		r.problem(out.Line, "annotations, if and cache are for tools, and the rule is about resources or prompts")
	case out.Action == "deny" && (has["limits"] || has["cache"]):
		r.problem(out.Line, "the rule denies, so that limits and cache have no meaning: remove them")
	case r.names[out.Name] != nil:
		r.problem(out.Line, "%s is already the name of the rule in %s:%d", quote(out.Name), r.names[out.Name].short, r.names[out.Name].Line)
	}
	if len(r.problems) > before {
		return
	}
	if out.Name != "" {
		r.names[out.Name] = out
	}
	out.verdict.Effect = map[string]authz.Effect{"allow": authz.Allow, "ask": authz.Ask, "deny": authz.Deny}[out.Action]
	out.verdict.Rule, out.verdict.Because, out.verdict.Audit = out.label(), out.Because, out.Audit
	out.verdict.ID = out.identity()
	r.rules = append(r.rules, out)
}

func (r *reader) condition(out *Rule, p *ast.MappingValueNode) {
	out.If = r.text(p, maxCondition)
	if out.If == "" {
		return
	}
	line := settings.LineOf(p.Value)
	if literal, ok := p.Value.(*ast.LiteralNode); ok && literal.Value != nil {
		line = settings.LineOf(literal) + 1
	}
	c, at, err := compile(out.If)
	if err != nil {
		r.problem(line+at, "if: %v", err)
	}
	out.condition = c
}

func (r *reader) limits(out *Rule, p *ast.MappingValueNode) {
	l := &authz.Limits{}
	out.verdict.Limits = l
	r.section(p.Value, "limits", limitKeys, func(name string, p *ast.MappingValueNode) {
		text := r.scalar(p)
		if text == "" {
			return
		}
		out.Limits = append(out.Limits, name+": "+text)
		var err error
		switch name {
		case "perExecution":
			l.PerExecution, err = count(text)
		case "perMinute":
			l.PerMinute, err = count(text)
		case "inFlight":
			l.InFlight, err = count(text)
		case "argumentBytes":
			l.ArgumentBytes, err = atLeastOne(settings.ParseSize(text))
		case "resultBytes":
			l.ResultBytes, err = atLeastOne(settings.ParseSize(text))
		case "time":
			l.Time, err = atLeastOne(settings.ParseDuration(text))
		}
		if err != nil {
			r.problem(settings.LineOf(p.Key), "%s: %s: %v", name, quote(text), err)
		}
	})
}

func count(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 100_000 {
		return 0, errors.New("not a number from 1 to 100000")
	}
	return n, nil
}

// atLeastOne refuses zero: it would mean no limit.
func atLeastOne[T ~int64](n T, err error) (T, error) {
	if err == nil && n <= 0 {
		err = errors.New("it must be more than zero (to allow no call, write action: deny)")
	}
	return n, err
}

func (r *reader) cache(out *Rule, p *ast.MappingValueNode) {
	c := &authz.CacheRule{}
	out.verdict.Cache = c
	before := len(r.problems)
	r.section(p.Value, "cache", cacheKeys, func(name string, p *ast.MappingValueNode) {
		if name == "force" {
			c.Force = r.truth(p)
			return
		}
		text := r.scalar(p)
		var err error
		if c.For, err = atLeastOne(settings.ParseDuration(text)); err != nil {
			r.problem(settings.LineOf(p.Key), "for: %s: %v", quote(text), err)
		}
	})
	if c.For == 0 && len(r.problems) == before {
		r.problem(settings.LineOf(p.Key), "cache has no duration: write cache: {for: 10m}")
	}
	out.Cache = "for " + settings.FormatDuration(c.For.Round(time.Millisecond))
	if c.Force {
		out.Cache += ", also what writes"
	}
}

// scalar returns the text of a word or a number.
func (r *reader) scalar(p *ast.MappingValueNode) string {
	switch v := p.Value.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return v.GetToken().Value
	}
	return r.text(p, maxText)
}

// text returns a string that is not empty.
func (r *reader) text(p *ast.MappingValueNode, most int) string {
	text := ""
	switch v := p.Value.(type) {
	case *ast.StringNode:
		text = v.Value
	case *ast.LiteralNode:
		if v.Value != nil {
			text = strings.TrimSpace(v.Value.Value)
		}
	default:
		r.problem(settings.LineOf(p.Key), "%s: %s stands where a string is expected", nameOf(p), settings.DescribeNode(p.Value))
		return ""
	}
	switch {
	case text == "":
		r.problem(settings.LineOf(p.Key), "%s: it is empty", nameOf(p))
	case len(text) > most:
		r.problem(settings.LineOf(p.Key), "%s: it is longer than %d bytes", nameOf(p), most)
	}
	return text
}

// patterns returns one name or a list of names.
func (r *reader) patterns(p *ast.MappingValueNode) []string {
	list, ok := p.Value.(*ast.SequenceNode)
	if !ok {
		return []string{r.text(p, maxText)}
	}
	var out []string
	for _, item := range list.Values {
		out = append(out, r.text(&ast.MappingValueNode{Key: p.Key, Value: item}, maxText))
	}
	if len(out) == 0 {
		r.problem(settings.LineOf(p.Key), "%s: the list is empty: name something, or remove the key", nameOf(p))
	}
	return out
}

func (r *reader) truth(p *ast.MappingValueNode) bool {
	v, ok := p.Value.(*ast.BoolNode)
	if !ok {
		r.problem(settings.LineOf(p.Key), "%s: %s stands where true or false is expected", nameOf(p), settings.DescribeNode(p.Value))
		return false
	}
	return v.Value
}

func (r *reader) choice(p *ast.MappingValueNode, what string, words ...string) string {
	return r.among(p, what, r.text(p, maxText), words)
}

// among returns a word that must be one of these.
func (r *reader) among(p *ast.MappingValueNode, what, text string, words []string) string {
	if text != "" && !slices.Contains(words, text) {
		best, near := settings.Nearest(text, words, ".")
		hint := "it is one of " + strings.Join(words, ", ")
		if near {
			hint = "did you mean " + best + "?"
		}
		r.problem(settings.LineOf(p.Key), "%s: there is no %s; %s", what, quote(text), hint)
	}
	return text
}
