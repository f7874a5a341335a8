package authz

import (
	"errors"
	"fmt"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/terminal"
)

// rule decides on actions of one kind and allows all others.
type rule struct {
	name   string
	decide func(*Config, Principal, Action) (Effect, error)
}

// rules are all there are. The first to deny gives the reason, so those that say
// whether code may know of a server come before those about its use. Rules after
// "servers" find a server in each action that uses one.
var rules = [...]rule{
	{"principal", byPrincipal},
	{"engine", byEngine},
	{"servers", byServers},
	{"definition", byDefinition},
	{"grant", byGrant},
	{"tools", byToolLists},
	{"changes", byForm},
	{"requests", byRequests},
	{"packages", byPackages},
	{"inquiries", byInquiries},
}

// byPrincipal denies what is done for no one.
func byPrincipal(_ *Config, p Principal, a Action) (Effect, error) {
	switch {
	case a == nil:
		return Deny, errors.New("no action was given, so nothing is allowed")
	case p.Owner == "":
		return Deny, errors.New("the request has no owner, so nothing is allowed")
	}
	return Allow, nil
}

// byEngine holds the engine against the policy before code runs.
func byEngine(c *Config, _ Principal, a Action) (Effect, error) {
	if run, ok := a.(RunCode); ok {
		if err := c.Policy.check(run.Engine); err != nil {
			return Deny, err
		}
	}
	return Allow, nil
}

// byServers applies policy.servers.
func byServers(c *Config, _ Principal, a Action) (Effect, error) {
	s, uses := a.on()
	switch {
	case !uses:
		return Allow, nil
	case s == nil:
		return Deny, errors.New("no server was named, so nothing is allowed")
	case !c.Policy.allowsServer(s.Name):
		return Deny, fmt.Errorf("MCP server %q is not allowed by the policy (to allow it, add it to policy.servers)", s.Name)
	}
	return Allow, nil
}

// byDefinition denies the use of servers that are disabled or that belong to a
// project the user does not trust. Code may find them.
func byDefinition(_ *Config, _ Principal, a Action) (Effect, error) {
	if _, find := a.(FindServer); find {
		return Allow, nil
	}
	s, uses := a.on()
	switch {
	case !uses:
	case s.Disabled:
		return Deny, fmt.Errorf("MCP server %q is disabled (%s)", s.Name, s.Remedy())
	case s.Offer != "":
		return Deny, fmt.Errorf("MCP server %q belongs to a project that the user has not trusted (%s)", s.Name, s.Remedy())
	}
	return Allow, nil
}

// Remedy says how the user can enable a server that is disabled or not trusted;
// it is empty for any other.
func (s *Server) Remedy() string {
	switch {
	case s.Disabled:
		return "the user can enable it: sallyport servers enable " + terminal.ShellWord(s.Name)
	case s.Offer == "changed":
		return "it changed since the user trusted the project; the user can look at it and trust it: sallyport servers trust"
	case s.Offer != "":
		return "the user can look at it and trust the project: sallyport servers trust"
	}
	return ""
}

// byGrant denies the use of a server that was not granted to the execution.
func byGrant(_ *Config, _ Principal, a Action) (Effect, error) {
	granted := true
	switch a := a.(type) {
	case ListServer:
		granted = a.Granted
	case CallTool:
		granted = a.Granted
	case ReadResource:
		granted = a.Granted
	case GetPrompt:
		granted = a.Granted
	}
	if granted {
		return Allow, nil
	}
	s, _ := a.on()
	return Deny, fmt.Errorf("Server '%s' is not available: it was not granted to this run; name it in 'servers', or await runtime.load_server('%s')", s.Name, s.Name)
}

// byToolLists applies the lists of allowed and denied tools in the server's
// definition.
func byToolLists(_ *Config, _ Principal, a Action) (Effect, error) {
	if c, ok := a.(CallTool); ok && (c.Server.ToolAllowed == nil || !c.Server.ToolAllowed(c.Tool)) {
		return Deny, fmt.Errorf("MCP server %q: the definition does not allow this tool (its lists of allowed and denied tools decide)", c.Server.Name)
	}
	return Allow, nil
}

// byForm denies what is not in the form that the user accepted, if that is set.
func byForm(c *Config, _ Principal, a Action) (Effect, error) {
	if !c.RefuseChanged {
		return Allow, nil
	}
	switch a := a.(type) {
	case CallTool:
		if why := a.Form.reason(); why != "" {
			server, tool := terminal.ShellWord(a.Server.Name), clip(a.Tool, 100)
			return Deny, fmt.Errorf("tool '%s' of server '%s' is refused: %s; the user can look at it with `sallyport tools show %s %s` and accept it with `sallyport tools approve %s`",
				tool, a.Server.Name, why, server, terminal.ShellWord(tool), server)
		}
	case ReadResource:
		return offered(a.Server, "resource "+a.URI, a.Form)
	case GetPrompt:
		return offered(a.Server, "prompt "+a.Prompt, a.Form)
	}
	return Allow, nil
}

func offered(s *Server, label string, form Form) (Effect, error) {
	switch why := form.reason(); {
	case why == "":
		return Allow, nil
	case form == FormUnreadable:
		return Deny, fmt.Errorf("server '%s': what it offers cannot be compared with what was accepted, so it is refused; the log says why", s.Name)
	default:
		return Deny, fmt.Errorf("%s of server '%s' is refused: %s; the user can look at it and accept it with `sallyport servers approve %s`",
			clip(label, 200), s.Name, why, terminal.ShellWord(s.Name))
	}
}

// reason says why a form is refused; empty for an accepted one.
func (f Form) reason() string {
	switch f {
	case FormAccepted:
		return ""
	case FormChanged:
		return "the server describes it differently from when it was accepted"
	case FormNew:
		return "the server did not have it when its tools were accepted"
	case FormDiffers:
		return "the server describes it differently from when it was accepted, or did not have it"
	case FormUnlisted:
		return "the server does not list it, and has changed what it lists since that was accepted"
	case FormUnreadable:
		return "the record of what was accepted cannot be read"
	default:
		return "it was not compared with what was accepted"
	}
}

// byRequests lets code add the servers that policy.requests names, and asks
// about any other.
func byRequests(c *Config, _ Principal, a Action) (Effect, error) {
	if r, ok := a.(RequestServer); ok && !requestAllowed(c.Requests, r) {
		return Ask, fmt.Errorf("Server '%s' is not configured, and policy.requests does not let code add it", clip(r.Server.Name, 100))
	}
	return Allow, nil
}

// byInquiries applies servers.may.
func byInquiries(c *Config, _ Principal, a Action) (Effect, error) {
	q, ok := a.(Inquire)
	switch {
	case !ok:
		return Allow, nil
	case q.Request == nil:
		return Deny, errors.New("nothing was asked, so nothing is allowed")
	case c.May != nil && c.May(q.Server.Name).Of(q.Request):
		return Allow, nil
	}
	name := clip(q.Server.Name, 100)
	switch q.Request.Method {
	case inquiry.Elicitation:
		return Deny, fmt.Errorf("MCP server %q may not ask the user (to allow it, add %s=elicit to servers.may)", name, name)
	case inquiry.Sampling:
		return Deny, fmt.Errorf("MCP server %q may not have the agent's model run, which costs tokens (to allow it, add %s=sample to servers.may)", name, name)
	}
	return Deny, fmt.Errorf("MCP server %q may not ask for this (to allow it, give the server an entry in servers.may that is not %s=none)", name, name)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
