package app

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/authz/toolpolicy"
	"github.com/sallyport/sallyport/internal/configfile"
	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// approvedFile has the rules that answers write: the first one in its directory,
// so that no other file's rule comes before.
const approvedFile = "00-approved.yaml"

// approvedRules writes rules of answers. It is an approval.Rules.
type approvedRules struct{ path string }

// plainName are names that mean nothing else in a rule.
var plainName = lazyregexp.New(`\A[A-Za-z0-9][A-Za-z0-9._:/@-]{0,199}\z`)

// Propose implements approval.Rules. Only what a profile asks about can be allowed
// for good: any other rule that asks is for the user to change.
func (r approvedRules) Propose(server, tool, of string) (approval.Rule, error) {
	switch {
	case !strings.HasPrefix(of, "profile "):
		return approval.Rule{}, fmt.Errorf("the rule %s asks: change it", of)
	case !plainName().MatchString(server), !plainName().MatchString(tool):
		return approval.Rule{}, errors.New("these names could mean something else in a rule")
	}
	return approval.Rule{File: r.path, Text: fmt.Sprintf("- server: %q\n  tool: %q\n  action: allow\n", server, tool)}, nil
}

// Write implements approval.Rules. It adds the rule, unless the file has it.
func (r approvedRules) Write(rule approval.Rule) error {
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
func (a *App) approvalRules() approval.Rules {
	path := a.Settings.File().Path
	if path == "" {
		return nil
	}
	return approvedRules{filepath.Join(filepath.Dir(path), toolpolicy.Directory, approvedFile)}
}
