package toolpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/ext"

	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/settings"
)

// Bounds of conditions: a call waits for them.
const (
	maxCondition = 4 << 10 // bytes of the text
	maxCost      = 250_000 // of one evaluation; reading a megabyte once is 100,000
	maxArguments = 1 << 20 // bytes of arguments that conditions look at
	maxDepth     = 32      // of arguments
)

// variables are what conditions can read.
var variables = []string{"args", "server", "tool", "session", "client"}

// environment is made when the first condition is compiled.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{cel.OptionalTypes(), ext.Strings(), cel.Variable(variables[0], cel.MapType(cel.StringType, cel.DynType))}
	for _, name := range variables[1:] {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	return cel.NewEnv(options...)
})

// condition is a compiled condition.
type condition struct {
	program cel.Program
	reads   bool // args
}

// compile compiles a condition. The line of its error is relative to the text.
func compile(text string) (c *condition, line int, err error) {
	if len(text) > maxCondition {
		return nil, 0, fmt.Errorf("it is longer than %d bytes", maxCondition)
	}
	env, err := environment()
	if err != nil {
		return nil, 0, err
	}
	checked, issues := env.Compile(text)
	if issues != nil && len(issues.Errors()) > 0 {
		first := issues.Errors()[0]
		message, _, _ := strings.Cut(first.Message, "\n")
		if _, rest, ok := strings.Cut(message, "undeclared reference to '"); ok {
			name, _, _ := strings.Cut(rest, "'")
			if near, ok := settings.Nearest(name, variables, "."); ok {
				message = fmt.Sprintf("there is no variable %q; did you mean %s?", name, near)
			} else {
				message = fmt.Sprintf("there is no %q; the variables are %s", name, strings.Join(variables, ", "))
			}
		}
		return nil, first.Location.Line() - 1, errors.New(message)
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, 0, fmt.Errorf("it says %s, and must be true or false", t)
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost))
	if err != nil {
		return nil, 0, err
	}
	c = &condition{program: program}
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		c.reads = c.reads || e.Kind() == ast.IdentKind && e.AsIdent() == variables[0]
	}))
	return c, 0, nil
}

// holds evaluates the condition. Its error may quote arguments.
func (c *condition) holds(s *subject) (bool, error) {
	values := map[string]any{
		"server": s.server, "tool": s.tool.Tool, "session": s.principal.Session, "client": s.principal.Client,
	}
	if c.reads {
		args, err := s.args.value()
		if err != nil {
			return false, err
		}
		values["args"] = args
	}
	out, _, err := c.program.Eval(values)
	if err != nil {
		return false, err
	}
	holds, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("it is neither true nor false")
	}
	return holds, nil
}

// arguments are decoded when the first condition reads them.
type arguments struct {
	raw     json.RawMessage
	done    bool
	decoded map[string]any
	err     error
}

func (a *arguments) value() (map[string]any, error) {
	if !a.done {
		a.done = true
		a.decoded, a.err = decode(a.raw)
	}
	return a.decoded, a.err
}

// decode decodes arguments. What different programs may read differently is an
// error: a server must not see other arguments than the rules.
func decode(raw json.RawMessage) (map[string]any, error) {
	switch {
	case len(raw) == 0:
		return map[string]any{}, nil
	case len(raw) > maxArguments:
		return nil, fmt.Errorf("the arguments take %d bytes, more than conditions look at (%d)", len(raw), maxArguments)
	case !utf8.Valid(raw):
		return nil, errors.New("the arguments are not UTF-8")
	}
	v, err := decodeValue(raw, 0)
	if err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the arguments are not an object")
	}
	return object, nil
}

func decodeValue(raw json.RawMessage, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the arguments nest deeper than %d", maxDepth)
	}
	var wrong error
	switch jsonscan.Kind(raw) {
	case '{':
		out := map[string]any{}
		err := jsonscan.Members(raw, func(key string, value json.RawMessage) bool {
			if _, twice := out[key]; twice {
				wrong = errors.New("the arguments have a key twice")
				return false
			}
			out[key], wrong = decodeValue(value, depth+1)
			return wrong == nil
		})
		return out, errors.Join(wrong, err)
	case '[':
		out := []any{}
		err := jsonscan.Elements(raw, func(value json.RawMessage) bool {
			var v any
			v, wrong = decodeValue(value, depth+1)
			out = append(out, v)
			return wrong == nil
		})
		return out, errors.Join(wrong, err)
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		return s, nil
	case 't', 'f':
		return jsonscan.Kind(raw) == 't', nil
	case 'n':
		return nil, nil
	}
	return number(strings.TrimSpace(string(raw)))
}

// number decodes a number. An integer that a double does not hold exactly is an
// error, however it is written: a server that reads doubles, as one in JavaScript
// does, would see another number than the rule.
func number(text string) (any, error) {
	if !json.Valid([]byte(text)) {
		return nil, errors.New("the arguments have something that is not JSON")
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && -1<<53 <= n && n <= 1<<53 {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, errors.New("a number in the arguments is too large")
	}
	if n, ok := integer(text); ok {
		if held, _ := big.NewFloat(f).Int(nil); held.Cmp(n) != 0 {
			return nil, errors.New("an integer in the arguments has more digits than a double holds, so that servers may read another one")
		}
		if !strings.ContainsAny(text, ".eE") && n.IsInt64() {
			return n.Int64(), nil
		}
	}
	return f, nil
}

// integer returns the value of a number of JSON that a double has room for, if it is
// an integer.
func integer(text string) (*big.Int, bool) {
	mantissa, exponent := text, "0"
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	whole, negative := strings.CutPrefix(whole, "-")
	digits := strings.TrimLeft(whole+fraction, "0")
	zeros := len(digits) - len(strings.TrimRight(digits, "0"))
	if digits == "" {
		return new(big.Int), true
	}
	power, err := strconv.Atoi(exponent)
	if err != nil {
		return nil, false // so small that a double has 0
	}
	power += zeros - len(fraction) // of ten, for the digits that follow
	if power < 0 {
		return nil, false
	}
	n, ok := new(big.Int).SetString(digits[:len(digits)-zeros]+strings.Repeat("0", power), 10)
	if ok && negative {
		n.Neg(n)
	}
	return n, ok
}
