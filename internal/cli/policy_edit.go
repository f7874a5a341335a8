package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/configfile"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// profiles says what each profile does, in the order of settings.Profiles.
var profiles = []string{
	"Every call goes out.",
	"Reads go out, as the server declares them; all else asks a person first.",
	"Only what a rule allows goes out.",
}

// profileTable describes the profiles and marks one.
func profileTable(marked string) string {
	var b strings.Builder
	for i, name := range settings.Profiles {
		mark := " "
		if name == marked {
			mark = "*"
		}
		fmt.Fprintf(&b, "%s %-8s %s\n", mark, name, profiles[i])
	}
	return b.String()
}

type policyProfileCmd struct {
	Profile string `arg:"" optional:"" help:"The profile: open, careful or locked." complete:"setting:policy.profile"`
	DryRun  bool   `help:"Say what would change, and change nothing."`
	JSON    bool   `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*policyProfileCmd) Help() string {
	return `Without a profile, shows which one is in force and where it comes from. With one, writes it to the configuration file, as 'sallyport config set policy.profile' does. It applies at once, also to code that runs. A variable or a flag can make the profile stricter than the file, and not weaker.

Examples:
  sallyport policy profile
  sallyport policy profile careful`
}

// profileInForce is the profile as JSON.
type profileInForce struct {
	Profile string `json:"profile"`
	From    string `json:"from"`
}

// Run implements the command.
func (c *policyProfileCmd) Run(u *ui) error {
	rules, err := u.rules()
	if err != nil {
		return err
	}
	before, broken := u.profile(rules), rules.Broken(true)
	if broken != nil {
		before = profileInForce{}
	}
	if c.Profile == "" {
		if broken != nil {
			return broken
		}
		if c.JSON {
			return u.printJSON(before)
		}
		_, err := fmt.Fprintf(u.stdio.Out, "%s (%s)\n\n%s", before.Profile, printable(before.From), profileTable(before.Profile))
		return err
	}
	src := u.Env.Sources(u.Dir, u.grammar.ConfigFile)
	value, err := settings.Value(settings.ProfileKey, []string{c.Profile}, src.Home, src.Dir, false)
	if err != nil {
		return err
	}
	content, changed, err := u.policyFile(func(content []byte) ([]byte, error) { return configfile.Set(content, settings.ProfileKey, value) }, c.DryRun)
	if err != nil {
		return err
	}
	after := profileInForce{Profile: value, From: u.Settings.File().Path}
	if view := u.RulesWith(content).View(); view.Profile != value {
		after = profileInForce{view.Profile, u.profileOrigin(view.ProfileFrom)}
	}
	if c.JSON {
		return u.printJSON(struct {
			Before  profileInForce `json:"before"`
			After   profileInForce `json:"after"`
			Changed bool           `json:"changed"`
			DryRun  bool           `json:"dryRun"`
		}{before, after, changed, c.DryRun})
	}
	file := printable(u.Settings.File().Path)
	switch {
	case !changed:
		fmt.Fprintf(u.stdio.Out, "%s has profile %s already.\n", file, value)
	case c.DryRun:
		fmt.Fprintf(u.stdio.Out, "%s would have profile %s.\n", file, value)
	default:
		fmt.Fprintf(u.stdio.Out, "%s has profile %s now.\n", file, value)
	}
	switch {
	case after.Profile != value:
		u.warn([]string{fmt.Sprintf("%s is stricter: profile %s stays in force here", after.From, after.Profile)})
	case changed && before.Profile != after.Profile:
		if broken == nil {
			fmt.Fprintf(u.stdio.Out, "before: %-8s %s\n", before.Profile, profileText(before.Profile))
		}
		fmt.Fprintf(u.stdio.Out, "now:    %-8s %s\n", after.Profile, profileText(after.Profile))
		if n := len(rules.View().Rules); n > 0 {
			fmt.Fprintf(u.stdio.Out, "Your %s before the profile ('sallyport policy').\n", plural(n, "rule decides", "rules decide"))
		}
		if !c.DryRun {
			fmt.Fprintln(u.stdio.Out, appliesNow)
		}
	}
	return nil
}

const appliesNow = "It applies at once, also to code that runs: no client needs to restart."

func profileText(name string) string { return profiles[slices.Index(settings.Profiles, name)] }

func (u *ui) profile(rules *toolpolicy.Rules) profileInForce {
	view := rules.View()
	return profileInForce{view.Profile, u.profileOrigin(view.ProfileFrom)}
}

// profileOrigin names the variable or the flag that a profile is from, of which
// rules know only that it is one.
func (u *ui) profileOrigin(from string) string {
	if u.Settings == nil {
		return from
	}
	if o := u.Settings.Origin(settings.ProfileKey); o.Overrides() {
		return o.Name
	}
	return from
}

// policyFile changes the configuration file, unless it is a trial, if the rules for
// calls are right after that. It returns the new content.
func (u *ui) policyFile(change func([]byte) ([]byte, error), trial bool) (after []byte, changed bool, err error) {
	path := u.Settings.File().Path
	if path == "" {
		return nil, false, errors.New("there is no home directory for a configuration file: name one with --config")
	}
	try := func(before []byte) ([]byte, error) {
		if after, err = change(before); err != nil {
			return nil, err
		}
		if changed = string(before) != string(after); !changed {
			return before, nil
		}
		if err := u.RulesWith(after).Broken(true); err != nil {
			return nil, fmt.Errorf("the file would be wrong, so nothing has changed: %w", err)
		}
		return after, nil
	}
	if !trial {
		err = u.changeConfig(try)
		return after, changed, err
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, err
	}
	after, err = try(before)
	return after, changed, err
}

// policyRuleFlags are what the commands have that write a rule.
type policyRuleFlags struct {
	Subject string `arg:"" name:"server.tool" help:"A server, or a tool of it, such as github, github.create_issue or github.get_*." complete:"tools"`
	Tool    string `arg:"" optional:"" help:"The tool, where the server stands alone." complete:"tools-of"`
	Force   bool   `help:"Write the rule although there is no such server or tool yet."`
	DryRun  bool   `help:"Say what would change, and change nothing."`
	JSON    bool   `help:"Print JSON." name:"json"`
}

type policyAllowCmd struct{ policyRuleFlags }

type policyAskCmd struct{ policyRuleFlags }

type policyDenyCmd struct{ policyRuleFlags }

// ruleTimeout bounds how long a server is asked for its tools.
const ruleTimeout = time.Minute

const ruleHelp = `The rule goes into the configuration file, after rules about fewer calls and before those that would decide in its place. One about the same is changed. A server alone, or with .*, is all that it has: tools, resources and prompts. The output says what happens to calls before and after, and which other rules still decide on some.

`

// Help implements kong's HelpProvider.
func (*policyAllowCmd) Help() string {
	return ruleHelp + `Example:
  sallyport policy allow github.create_issue`
}

// Help implements kong's HelpProvider.
func (*policyAskCmd) Help() string {
	return ruleHelp + `Example:
  sallyport policy ask github.create_issue --dry-run`
}

// Help implements kong's HelpProvider.
func (*policyDenyCmd) Help() string {
	return ruleHelp + `Examples:
  sallyport policy deny github.delete_repo
  sallyport policy deny 'github.delete_*'`
}

// Run implements the command.
func (c *policyAllowCmd) Run(u *ui) error { return c.write(u, "allow") }

// Run implements the command.
func (c *policyAskCmd) Run(u *ui) error { return c.write(u, "ask") }

// Run implements the command.
func (c *policyDenyCmd) Run(u *ui) error { return c.write(u, "deny") }

// ruleWritten is what became of a rule, as JSON.
type ruleWritten struct {
	File    string     `json:"file"`
	Server  string     `json:"server"`
	Tool    string     `json:"tool,omitempty"`
	Action  string     `json:"action"`
	Changed bool       `json:"changed"`
	DryRun  bool       `json:"dryRun"`
	Before  []decision `json:"before"`
	After   []decision `json:"after"`
	Notes   []string   `json:"notes,omitempty"`
}

// write writes a rule with an action.
func (c *policyRuleFlags) write(u *ui, action string) error {
	u.quiet = c.JSON
	sys, err := u.compose(&composeFlags{})
	if err != nil {
		return err
	}
	defer sys.Close()
	on, calls, notes, err := c.subject(u, sys)
	if err != nil {
		return err
	}
	rules := u.Rules()
	if err := rules.Broken(true); err != nil {
		return err
	}
	var plan toolpolicy.Plan
	before := decisions(rules, calls)
	content, changed, err := u.policyFile(func(content []byte) ([]byte, error) {
		now := u.RulesWith(content) // what is to be changed, whatever it was before
		if err := now.Broken(true); err != nil {
			return nil, err
		}
		if plan = now.Plan(on, action); len(plan.Deny) > 0 {
			return content, nil
		}
		return withRule(content, plan, on, action)
	}, c.DryRun)
	if len(plan.Deny) > 0 {
		r := plan.Deny[0]
		return fmt.Errorf("%s:%d denies it (%s), and a rule that denies wins wherever it stands: change that one ('sallyport config edit')", r.File, r.Line, r.Matches())
	}
	if errors.Is(err, configfile.ErrByHand) {
		return fmt.Errorf("%w; the rule is {%s}", err, strings.Join(ruleLines(on, action), ", "))
	}
	if err != nil {
		return err
	}
	out := ruleWritten{
		File: u.Settings.File().Path, Server: on.Server, Tool: on.Tool, Action: action, Changed: changed, DryRun: c.DryRun,
		Before: before, After: decisions(u.RulesWith(content), calls), Notes: notes,
	}
	for _, r := range plan.First {
		out.Notes = append(out.Notes, fmt.Sprintf("%s:%d still decides first on some of the calls: %s, %s", r.File, r.Line, r.Action, r.Matches()))
	}
	if !slices.ContainsFunc(u.Settings.Policy.Servers, func(p string) bool { return authz.Matches(p, on.Server) }) {
		out.Notes = append(out.Notes, "policy.servers grants no server of that name, so code cannot use it")
	}
	if c.JSON {
		return u.printJSON(out)
	}
	return out.print(u)
}

func (o *ruleWritten) print(u *ui) error {
	var b strings.Builder
	subject := o.Server
	if o.Tool != "" {
		subject += "." + o.Tool
	}
	switch {
	case !o.Changed:
		fmt.Fprintf(&b, "%s has the rule %s %s already.\n", o.File, o.Action, subject)
	case o.DryRun:
		fmt.Fprintf(&b, "%s would have the rule %s %s.\n", o.File, o.Action, subject)
	default:
		fmt.Fprintf(&b, "%s has the rule %s %s now.\n", o.File, o.Action, subject)
	}
	if o.Changed {
		for _, d := range o.Before {
			fmt.Fprintf(&b, "before: %s\n", d)
		}
	}
	for _, d := range o.After {
		fmt.Fprintf(&b, "now:    %s\n", d)
	}
	for _, note := range o.Notes {
		fmt.Fprintf(&b, "note:   %s\n", note)
	}
	if o.Changed && !o.DryRun {
		b.WriteString(appliesNow + "\n")
	}
	_, err := u.stdio.Out.Write([]byte(invisible.Escape(b.String())))
	return err
}

// subject returns what the rule is to be about, and the calls that are known of it.
func (c *policyRuleFlags) subject(u *ui, sys *app.System) (on toolpolicy.Subject, calls []authz.CallTool, notes []string, err error) {
	snapshot := sys.Library.Snapshot()
	var names []string
	for _, d := range snapshot.Definitions {
		names = append(names, d.Name)
	}
	if on.Server, err = tool.ReadServer(names, c.Subject); err == nil && on.Server == "" && c.Tool == "" {
		on.Server, on.Tool, err = tool.ReadTool(names, c.Subject)
	}
	if err != nil {
		return on, nil, nil, err
	}
	if c.Tool != "" {
		on.Tool = tool.ToolName(c.Tool)
	}
	if on.Server == "" {
		server, name, _ := strings.Cut(c.Subject, ".")
		if !c.Force {
			return on, nil, nil, fmt.Errorf("%w; --force writes the rule nevertheless", unknownServer(server, snapshot))
		}
		if on.Server = server; c.Tool == "" {
			on.Tool = name
		}
	}
	if on.Tool == "*" {
		on.Tool = ""
	}
	if strings.Contains(on.Server, "*") {
		return on, nil, nil, errors.New("name one server: one with * in its name would be several in a rule")
	}
	call := func(t tool.Tool) {
		calls = append(calls, authz.CallTool{Server: &authz.Server{Name: on.Server}, Tool: t.Name, Annotations: t.Annotations})
	}
	(&toolsFlags{Timeout: ruleTimeout}).learn(u, sys, on.Server) // a rule may name a tool as its function
	e, known := sys.Catalog.Entry(on.Server)
	if e.Listing == nil {
		why := "there is no such server yet"
		if known {
			why = "the server's tools are not known, so that the name is taken as it is: " + whyNot(e.Failure)
		}
		call(tool.Tool{Name: cmp.Or(on.Tool, "*")})
		return on, calls, []string{why}, nil
	}
	tools := e.Listing.Tools
	if on.Tool != "" && !strings.Contains(on.Tool, "*") {
		t, err := tool.Find(tools, on.Tool)
		switch {
		case err != nil:
			return on, nil, nil, err
		case t != nil && strings.Contains(t.Name, "*"):
			return on, nil, nil, fmt.Errorf("the tool %q has * in its name, which would be several tools in a rule", t.Name)
		case t != nil:
			on.Tool, tools = t.Name, []tool.Tool{*t}
		case c.Force:
			tools = []tool.Tool{{Name: on.Tool}}
		}
	}
	for _, t := range tools {
		if on.Tool == "" || authz.Matches(on.Tool, t.Name) {
			call(t)
		}
	}
	if len(calls) == 0 && !c.Force {
		return on, nil, nil, fmt.Errorf("%w; --force writes the rule nevertheless", unknownTool(on.Server, on.Tool, e.Listing))
	}
	return on, calls, nil, nil
}

// withRule returns the content of the configuration file with the rule.
func withRule(content []byte, plan toolpolicy.Plan, on toolpolicy.Subject, action string) ([]byte, error) {
	if plan.Same == nil {
		return configfile.Insert(content, settings.RulesKey, plan.At, ruleLines(on, action))
	}
	var err error
	if plan.Same.Action != action {
		if content, err = configfile.ReplaceWord(content, settings.RulesKey, plan.SameAt, "action", action); err != nil {
			return nil, err
		}
	}
	if plan.Moves() {
		return configfile.Move(content, settings.RulesKey, plan.SameAt, plan.At)
	}
	return content, nil
}

func ruleLines(on toolpolicy.Subject, action string) []string {
	lines := []string{"server: " + settings.QuoteYAML(on.Server)}
	if on.Tool != "" {
		lines = append(lines, "tool: "+settings.QuoteYAML(on.Tool))
	}
	return append(lines, "action: "+action)
}

// decision is what happens to calls of some tools.
type decision struct {
	Decision string   `json:"decision"`
	Rule     string   `json:"rule"`
	Tools    []string `json:"tools"`
}

// String names a few of the tools.
func (d decision) String() string {
	const most = 3
	text := fmt.Sprintf("%-5s by %s", d.Decision, d.Rule)
	if len(d.Tools) == 1 && d.Tools[0] == "*" {
		return text
	}
	text += ": " + strings.Join(d.Tools[:min(most, len(d.Tools))], ", ")
	if more := len(d.Tools) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// decisions returns what usually happens to these calls, whatever their arguments.
func decisions(rules *toolpolicy.Rules, calls []authz.CallTool) []decision {
	out := []decision{}
	for _, call := range calls {
		v := rules.Usual(call)
		at := slices.IndexFunc(out, func(d decision) bool { return d.Decision == v.Effect.String() && d.Rule == v.Rule })
		if at < 0 {
			at = len(out)
			out = append(out, decision{Decision: v.Effect.String(), Rule: v.Rule})
		}
		out[at].Tools = append(out[at].Tools, call.Tool)
	}
	return out
}
