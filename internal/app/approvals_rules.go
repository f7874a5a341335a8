package app

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/configfile"
	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// approvedRules writes rules of answers. It is an approval.Rules.
type approvedRules struct {
	path  string
	rules *toolpolicy.Rules
}

// plainName are names that mean nothing else in a rule.
var plainName = lazyregexp.New(`\A[A-Za-z0-9][A-Za-z0-9._:/@-]{0,199}\z`)

// Propose implements approval.Rules. Only what a profile asks about can be allowed
// for good, and only where no rule of the user is about the tool: any other rule
// that asks, or that would go on to limit, ask about or deny some calls of it, is
// for the user to change.
func (r approvedRules) Propose(call authz.CallTool, asks authz.Verdict) (approval.Rule, error) {
	server, tool := call.Server.Name, call.Tool
	if !toolpolicy.ByProfile(asks) {
		return approval.Rule{}, fmt.Errorf("the rule %s asks: change it", asks.Rule)
	}
	if another := r.rules.Another(call); another != "" {
		return approval.Rule{}, fmt.Errorf("the rule %s is about this tool, too: change it", another)
	}
	if !plainName().MatchString(server) || !plainName().MatchString(tool) {
		return approval.Rule{}, errors.New("these names could mean something else in a rule")
	}
	return approval.Rule{File: r.path, Text: fmt.Sprintf("- server: %q\n  tool: %q\n  action: allow\n", server, tool)}, nil
}

// Write implements approval.Rules. It adds the rule, unless the file has it.
func (r approvedRules) Write(rule approval.Rule) error {
	if err := r.write(rule); err != nil {
		return err
	}
	return r.rules.Broken(true) // reads the file
}

func (r approvedRules) write(rule approval.Rule) error {
	f, err := configfile.Open(rule.File)
	if err != nil {
		return err
	}
	defer f.Close()
	before, err := f.Read()
	if err != nil {
		return err
	}
	after := bytes.Clone(before)
	switch {
	case len(before) == 0:
		after = []byte("# Calls that were approved with \"always\". Remove a rule to be asked again.\n")
	case bytes.Contains(before, []byte(rule.Text)):
		return nil
	case before[len(before)-1] != '\n':
		after = append(after, '\n')
	}
	return f.Replace(before, append(after, rule.Text...))
}

// approvalRules returns what writes rules; nil where there is no place for them.
func (a *App) approvalRules(rules *toolpolicy.Rules) approval.Rules {
	path := a.Settings.File().Path
	if path == "" {
		return nil
	}
	return approvedRules{filepath.Join(filepath.Dir(path), toolpolicy.Directory, toolpolicy.ApprovedFile), rules}
}
