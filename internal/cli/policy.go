package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

type policyCmd struct {
	Show    policyShowCmd    `cmd:"" default:"withargs" help:"Print the rules for calls, and where each comes from."`
	Explain policyExplainCmd `cmd:"" unused:"engine,python" help:"Say what happens to a call, and which rule decides."`
	Test    policyTestCmd    `cmd:"" help:"Compare the decisions about calls with those that a file expects."`
	Check   policyCheckCmd   `cmd:"" help:"Check the files of rules."`
	Profile policyProfileCmd `cmd:"" help:"Show or change what happens to calls that no rule is about."`
	Allow   policyAllowCmd   `cmd:"" help:"Let code call a server's tools, or one of them, without a question."`
	Ask     policyAskCmd     `cmd:"" help:"Ask a person before code calls a server's tools, or one of them."`
	Deny    policyDenyCmd    `cmd:"" help:"Refuse all calls of a server's tools, or of one of them."`
}

// Help implements kong's HelpProvider.
func (*policyCmd) Help() string {
	return `Rules for calls are a list, policy.tools in the configuration file, and further lists in policy.d/*.yaml next to it. A rule that denies wins wherever it stands; otherwise the first rule that matches decides. What no rule is about, the profile decides:

` + profileTable("") + `
Changes apply at once, also to code that runs: no client needs to restart. While a file is wrong, no code runs. In the configuration file:

  policy:
    profile: careful
    tools:
      - server: github
        tool: [create_*, get_issue]
        action: allow
      - server: github
        tool: delete_repo
        action: deny
        because: repositories are deleted by hand

Examples:
  sallyport policy
  sallyport policy profile careful
  sallyport policy allow github.create_issue
  sallyport policy deny github.delete_repo`
}

// rules reads the user's rules for calls. A configuration file with which no
// settings can be loaded is for the rules to judge, as they do in a program that
// runs.
func (u *ui) rules() (*toolpolicy.Rules, error) {
	err := u.loadSettings()
	if err == nil {
		return u.Rules(), nil
	}
	if rules := u.brokenRules(err); rules != nil {
		return rules, nil
	}
	return nil, err
}

// brokenRules returns the rules of the configuration file if that is why the
// settings cannot be loaded, and nil otherwise.
func (u *ui) brokenRules(err error) *toolpolicy.Rules {
	file := settings.FileOf(u.Env.Sources(u.Dir, u.grammar.ConfigFile))
	wrong, ok := errors.AsType[*settings.Error](err)
	if !ok || file.Path == "" || !slices.ContainsFunc(wrong.Problems, func(p settings.Problem) bool { return p.File == file.Path }) {
		return nil
	}
	if rules := u.RulesOf(file); rules.Broken(true) != nil {
		return rules
	}
	return nil
}

type policyShowCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*policyShowCmd) Help() string {
	return `The rules are printed in the order in which they count, those that deny aside: they always win.

Examples:
  sallyport policy show
  sallyport policy show --json | jq '.rules[] | select(.action == "ask")'`
}

// Run implements the command.
func (c *policyShowCmd) Run(u *ui) error {
	rules, err := u.rules()
	if err != nil {
		return err
	}
	view := rules.View()
	if c.JSON {
		err = u.printJSON(view)
	} else {
		t := u.table()
		for _, r := range view.Rules {
			t.Row(r.Action, printable(r.Name), printable(r.Matches()), printable(strings.Join(extras(r), ", ")), printable(fmt.Sprintf("%s:%d", r.File, r.Line)))
		}
		if err := t.Write(u.stdio.Out); err != nil {
			return err
		}
		_, err = fmt.Fprintf(u.stdio.Out, "everything else: profile %s (%s)\n", view.Profile, printable(view.ProfileFrom))
		printProblems(u.stdio.Err, view.Problems)
	}
	return failIf(err, len(view.Problems) > 0)
}

// extras describes what a rule adds to its action.
func extras(r *toolpolicy.Rule) []string {
	out := append([]string{}, r.Limits...)
	if r.Cache != "" {
		out = append(out, "cache "+r.Cache)
	}
	if r.Audit != "" {
		out = append(out, "audit "+r.Audit)
	}
	return out
}

// failIf makes a command fail that has said why.
func failIf(err error, failed bool) error {
	if err == nil && failed {
		return exitError(exitFailed)
	}
	return err
}

func printProblems(w io.Writer, problems []settings.Problem) {
	for _, p := range problems {
		fmt.Fprintln(w, printable(p.String()))
	}
}

type policyCheckCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*policyCheckCmd) Help() string {
	return `Each problem is printed with its file and line, as programs that run find it, too. The exit status is 1 if there is one. A rule that matches no server or no tool, as far as these are known, gets a warning. Nothing is started.

Examples:
  sallyport policy check
  sallyport policy check --json | jq '.warnings[]'`
}

// Run implements the command.
func (c *policyCheckCmd) Run(u *ui) error {
	u.quiet = true
	rules, err := u.rules()
	if err != nil {
		return err
	}
	view := rules.View()
	warnings := []settings.Problem{}
	if len(view.Problems) == 0 && len(view.Rules) > 0 {
		known, err := u.knownServers()
		if err != nil { // which other commands report as an error
			fmt.Fprintf(u.stdio.Err, "whether the rules match servers and tools is not known: %s\n", printable(err.Error()))
		} else {
			warnings = append(warnings, view.Warnings(known)...)
		}
	}
	if c.JSON {
		err = u.printJSON(struct {
			Rules    int                `json:"rules"`
			Files    []string           `json:"files"`
			Problems []settings.Problem `json:"problems"`
			Warnings []settings.Problem `json:"warnings"`
		}{len(view.Rules), view.Files, append([]settings.Problem{}, view.Problems...), warnings})
		return failIf(err, len(view.Problems) > 0)
	}
	printProblems(u.stdio.Out, view.Problems)
	for _, w := range warnings {
		fmt.Fprintf(u.stdio.Out, "warning: %s\n", printable(w.String()))
	}
	if len(view.Problems) == 0 {
		_, err = fmt.Fprintf(u.stdio.Out, "ok: %s in %s, profile %s\n", count(len(view.Rules), "rule"), count(len(view.Files), "file"), view.Profile)
	}
	return failIf(err, len(view.Problems) > 0)
}

// knownServers returns the servers that the user has, with their tools where these
// are known. It starts none.
func (u *ui) knownServers() ([]toolpolicy.Known, error) {
	sys, err := u.compose(&composeFlags{})
	if err != nil {
		return nil, err
	}
	defer sys.Close()
	var out []toolpolicy.Known
	for _, d := range sys.Library.Snapshot().Definitions {
		k := toolpolicy.Known{Name: d.Name}
		if e, ok := sys.Catalog.Entry(d.Name); ok && e.Listing != nil {
			k.Listed = true
			for _, t := range e.Listing.Tools {
				k.Tools = append(k.Tools, t.Name)
			}
		}
		out = append(out, k)
	}
	return out, nil
}

type policyExplainCmd struct {
	toolsFlags
	Server  string `arg:"" help:"The server's name, or the whole tool as it is printed, such as mcp_github.create_issue." complete:"tools"`
	Tool    string `arg:"" optional:"" help:"The name of the tool, or of its function." complete:"tools-of"`
	Args    string `arg:"" optional:"" help:"The arguments, a JSON object."`
	Session string `help:"The session that calls." placeholder:"NAME"`
	Client  string `help:"What the client calls itself." placeholder:"NAME"`
	JSON    bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*policyExplainCmd) Help() string {
	return `Nothing is called. What the tool's server says of it (its annotations) is taken from what is known about its tools.

Examples:
  sallyport policy explain filesystem write_file '{"path": "/tmp/x"}'
  sallyport policy explain mcp_github.create_issue --session work --json`
}

// explained is what happens to a call.
type explained struct {
	Server      string          `json:"server"`
	Tool        string          `json:"tool"`
	Decision    string          `json:"decision"`
	Rule        string          `json:"rule,omitempty"` // of the user, of the gate, or the profile
	Origin      string          `json:"origin,omitempty"`
	Matches     string          `json:"matches,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Extras      []string        `json:"with,omitempty"`
	Annotations map[string]bool `json:"annotations"`
	Troubles    []string        `json:"troubles,omitempty"`
}

// Run implements the command.
func (c *policyExplainCmd) Run(u *ui) error {
	u.quiet = c.JSON
	sys, err := u.compose(&c.composeFlags)
	if err != nil {
		return err
	}
	defer sys.Close()
	e, name, rest, err := c.tool(u, sys, c.Server, c.Tool, c.Args)
	if err != nil {
		return err
	}
	if c.Args = strings.Join(rest, " "); len(rest) > 1 {
		return fmt.Errorf("%s names a tool already; give the arguments as one JSON object", c.Server)
	}
	var object map[string]json.RawMessage
	if c.Args != "" && (json.Unmarshal([]byte(c.Args), &object) != nil || object == nil) {
		return errors.New("the arguments must be a JSON object, such as '{\"path\": \"/tmp\"}'")
	}
	t := &tool.Tool{Name: name}
	if e.Listing != nil {
		if t, err = findTool(&e, name); err != nil {
			return err
		}
	}
	call, err := sys.Bridge.CallOf(e.Name, t, json.RawMessage(c.Args))
	if err != nil {
		return err
	}
	p := authz.Local(c.Client)
	p.Session = c.Session
	why := sys.Rules.Explain(p, call)
	d := sys.Gate.Decide(p, call)
	out := explained{Server: e.Name, Tool: t.Name, Decision: d.Effect.String(), Rule: d.Rule, Troubles: why.Troubles, Annotations: map[string]bool{
		"readOnly": call.Annotations.ReadOnly, "destructive": call.Annotations.Destructive(), "idempotent": call.Annotations.Idempotent, "openWorld": !call.Annotations.ClosedWorld,
	}}
	if d.Reason != nil {
		out.Reason = d.Reason.Error()
	}
	if d.Rule == "" || d.Rule == authz.RuleTools {
		out.Rule = why.Verdict.Rule
		if r := why.Rule; r != nil {
			out.Origin, out.Matches, out.Extras = fmt.Sprintf("%s:%d", r.File, r.Line), r.Matches(), extras(r)
		}
	}
	if e.Listing == nil {
		out.Troubles = append(out.Troubles, "the server's tools are not known, so that the tool counts as one without annotations: "+whyNot(e.Failure))
	}
	if c.JSON {
		return u.printJSON(out)
	}
	return out.print(u.stdio.Out)
}

func (e *explained) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s.%s\n", e.Decision, e.Server, e.Tool)
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-8s %s\n", name, strings.ReplaceAll(text, "\n", " "))
		}
	}
	line("rule", e.Rule)
	line("from", e.Origin)
	line("matches", e.Matches)
	line("reason", e.Reason)
	line("with", strings.Join(e.Extras, ", "))
	var says []string
	for _, name := range []string{"readOnly", "destructive", "idempotent", "openWorld"} {
		says = append(says, fmt.Sprintf("%s: %v", name, e.Annotations[name]))
	}
	line("tool", strings.Join(says, ", "))
	for _, t := range e.Troubles {
		line("note", t)
	}
	_, err := io.WriteString(w, invisible.Escape(b.String()))
	return err
}

type policyTestCmd struct {
	File string `arg:"" help:"A list of cases, in YAML." complete:"files"`
	JSON bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*policyTestCmd) Help() string {
	return `A case names a server, a tool (or a resource, or a prompt) and what to want of the rules for calls: allow, deny or ask. It may have args, annotations, session, client and the rule that must decide. A tool has the annotations of its case, and no others. The exit status is 1 if a decision differs. Nothing is started or called.

  - {server: github, tool: delete_repo, args: {name: x}, want: deny, rule: no-deletes}
  - {server: fs, tool: read_file, annotations: {readOnly: true}, want: allow}

Examples:
  sallyport policy test cases.yaml
  sallyport policy test cases.yaml --json | jq .wrong`
}

// tested is how a case ended.
type tested struct {
	Line     int    `json:"line"`
	What     string `json:"what"`
	Got      string `json:"got"`
	GotRule  string `json:"gotRule"`
	Want     string `json:"want"`
	WantRule string `json:"wantRule,omitempty"`
	OK       bool   `json:"ok"`
}

// Run implements the command.
func (c *policyTestCmd) Run(u *ui) error {
	rules, err := u.rules()
	if err != nil {
		return err
	}
	if err := rules.Broken(true); err != nil {
		return err
	}
	content, err := os.ReadFile(c.File)
	if err != nil {
		return err
	}
	cases, problems := toolpolicy.ReadCases(c.File, content)
	if len(problems) > 0 {
		printProblems(u.stdio.Err, problems)
		return exitError(exitUsage)
	}
	out, wrong := []tested{}, 0
	for _, want := range cases {
		v := rules.Explain(want.Principal, want.Action).Verdict
		t := tested{Line: want.Line, What: authz.NameOf(want.Action), Got: v.Effect.String(), GotRule: v.Rule, Want: want.Want, WantRule: want.Rule}
		t.OK = t.Got == t.Want && (t.WantRule == "" || t.GotRule == t.WantRule)
		if !t.OK {
			wrong++
			if !c.JSON {
				fmt.Fprintln(u.stdio.Out, printable(fmt.Sprintf("%s:%d: %s: got %s, want %s", c.File, t.Line, t.What, decided(t.Got, t.GotRule), decided(t.Want, t.WantRule))))
			}
		}
		out = append(out, t)
	}
	if c.JSON {
		err = u.printJSON(struct {
			Cases []tested `json:"cases"`
			Wrong int      `json:"wrong"`
		}{out, wrong})
	} else {
		_, err = fmt.Fprintf(u.stdio.Out, "%s, %d wrong\n", count(len(out), "case"), wrong)
	}
	return failIf(err, wrong > 0)
}

// decided describes a decision.
func decided(effect, rule string) string {
	if rule == "" {
		return effect
	}
	return effect + " by " + rule
}
