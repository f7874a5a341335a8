package main

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// A request is one call of run_python, as a model would send it.
type request struct {
	code      string
	name      string // of the argument that has the code
	arguments map[string]json.RawMessage
}

// A rule rewrites a request as a line of an answer says. found are the groups of
// the line. It does nothing but what the line says, and knows no task.
type rule struct {
	line    *regexp.Regexp
	rewrite func(r *request, found []string)
}

var rules = []rule{
	{regexp.MustCompile(`^Hint: line (\d+): (.+)\(\.\.\.\) was called without await`), func(r *request, f []string) {
		r.onLine(f[1], func(s string) string {
			i := strings.Index(s, f[2]+"(")
			for i >= 0 && strings.HasSuffix(s[:i], "await ") {
				next := strings.Index(s[i+1:], f[2]+"(")
				if next < 0 {
					return s
				}
				i += 1 + next
			}
			if i < 0 {
				return s
			}
			end := closing(s, i+len(f[2]))
			return s[:i] + "(await " + s[i:end] + ")" + s[end:]
		})
	}},
	{regexp.MustCompile(`^Hint: line (\d+): .*remove await`), func(r *request, f []string) {
		r.onLine(f[1], func(s string) string { return strings.Replace(s, "await ", "", 1) })
	}},
	{regexp.MustCompile(`^Hint: line (\d+): remove it`), func(r *request, f []string) {
		r.onLine(f[1], func(string) string { return "" })
	}},
	{regexp.MustCompile(`^Hint: line (\d+): write (subprocess\.run\(.*\)) for a command`), func(r *request, f []string) {
		r.onLine(f[1], func(string) string { return "import subprocess; " + f[2] })
	}},
	{regexp.MustCompile(`^Hint: nothing can be installed from here`), func(r *request, _ []string) {
		r.code = installs.ReplaceAllString(r.code, "")
	}},
	{regexp.MustCompile(`^Hint: (\w+) is a server: import (mcp_\w+)`), func(r *request, f []string) {
		r.code = strings.ReplaceAll(r.code, "from "+f[1]+" import", "from "+f[2]+" import")
		r.code = strings.ReplaceAll(r.code, "import "+f[1]+"\n", "import "+f[2]+" as "+f[1]+"\n")
	}},
	{regexp.MustCompile(`^Hint: there is no server (mcp_\w+); did you mean '(mcp_\w+)'`), func(r *request, f []string) { r.word(f[1], f[2]) }},
	{regexp.MustCompile(`^(?:Hint: |mcp\.runtime\.ArgumentError: ).*there is no argument '(\w+)'; did you mean '(\w+)'`), func(r *request, f []string) { r.argument(f[1], f[2]) }},
	{regexp.MustCompile(`^Hint: .* has no argument '(\w+)'; did you mean '(\w+)'`), func(r *request, f []string) { r.argument(f[1], f[2]) }},
	{regexp.MustCompile(`has no tool '(\w+)'; did you mean '(\w+)'`), func(r *request, f []string) { r.word(f[1], f[2]) }},
	{regexp.MustCompile(`Unknown MCP server: (\S+) \(nearest: ([\w.-]+)`), func(r *request, f []string) {
		r.arguments["servers"] = json.RawMessage(strings.ReplaceAll(string(r.arguments["servers"]), strconv.Quote(f[1]), strconv.Quote(f[2])))
	}},
	{regexp.MustCompile(`^Hint: run_python has no argument "(\w+)": the name is "(\w+)"`), func(r *request, f []string) {
		if f[2] == "code" {
			r.name = "code"
		} else if v, ok := r.arguments[f[1]]; ok {
			delete(r.arguments, f[1])
			r.arguments[f[2]] = v
		}
	}},
	{regexp.MustCompile(`^Hint: write "(\w+)": (.*)`), func(r *request, f []string) { r.arguments[f[1]] = json.RawMessage(f[2]) }},
	{regexp.MustCompile(`^Hint: pass timeout=(\d+)`), func(r *request, f []string) { r.arguments["timeout"] = json.RawMessage(f[1]) }},
	{regexp.MustCompile(`^Hint: write ((?:import|from) .*) first`), func(r *request, f []string) { r.code = f[1] + "\n" + r.code }},
	{regexp.MustCompile(`Did you (?:mean: '\w+'\? Or did you )?forget to import '(\w+)'`), func(r *request, f []string) { r.code = "import " + f[1] + "\n" + r.code }},
	{regexp.MustCompile(`^Hint: '(.*)' would be a path of the host.*: await (\S+)\(path=`), func(r *request, f []string) {
		opened := regexp.MustCompile(`open\(r?['"]` + regexp.QuoteMeta(f[1]) + `['"][^)]*\)`)
		r.code = opened.ReplaceAllLiteralString(r.code, `__import__("io").StringIO(await `+f[2]+`(path="`+f[1]+`"))`)
	}},
	{regexp.MustCompile(`^Hint: send only the code`), func(r *request, _ []string) {
		if f := fenced.FindStringSubmatch(r.code); f != nil {
			r.code = f[1]
		}
	}},
	{regexp.MustCompile(`^Hint: it is a saved tool: (from user_tools import \w+)`), func(r *request, f []string) { r.code = f[1] + "\n" + r.code }},
}

var (
	installs = regexp.MustCompile(`(?m)^.*\b(?:pip3?|uv|conda)\b['", ]+(?:pip +)?install\b.*\n?`)
	fenced   = regexp.MustCompile("(?s)```\\w*\n(.*?)\n?```")
)

// follow returns the request as the lines of an answer say, and whether any did.
func follow(r request, answer string) (request, bool) {
	next := request{code: r.code, name: r.name, arguments: map[string]json.RawMessage{}}
	for k, v := range r.arguments {
		next.arguments[k] = v
	}
	for _, line := range strings.Split(answer, "\n") {
		for _, rule := range rules {
			if found := rule.line.FindStringSubmatch(line); found != nil {
				rule.rewrite(&next, found)
				break
			}
		}
	}
	return next, !same(r, next)
}

func same(a, b request) bool {
	if a.code != b.code || a.name != b.name || len(a.arguments) != len(b.arguments) {
		return false
	}
	for k, v := range a.arguments {
		if string(b.arguments[k]) != string(v) {
			return false
		}
	}
	return true
}

// onLine rewrites one line of the code.
func (r *request) onLine(number string, rewrite func(string) string) {
	n, err := strconv.Atoi(number)
	lines := strings.Split(r.code, "\n")
	if err != nil || n < 1 || n > len(lines) {
		return
	}
	lines[n-1] = rewrite(lines[n-1])
	r.code = strings.Join(lines, "\n")
}

// word replaces a name wherever the code has it.
func (r *request) word(old, name string) {
	r.code = regexp.MustCompile(`\b`+regexp.QuoteMeta(old)+`\b`).ReplaceAllLiteralString(r.code, name)
}

// argument replaces the name of an argument.
func (r *request) argument(old, name string) {
	r.code = regexp.MustCompile(`\b`+regexp.QuoteMeta(old)+`(\s*)=`).ReplaceAllString(r.code, name+"$1=")
}

// closing returns the index after the parenthesis that closes the one at open.
func closing(s string, open int) int {
	depth := 0
	for i := open; i < len(s); i++ {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}
