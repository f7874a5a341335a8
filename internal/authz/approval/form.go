package approval

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/invisible"
)

const (
	// maxForm bounds the text of a form. A longer question is for a terminal alone.
	maxForm = 64 << 10
	// maxCount bounds the calls that an answer covers by their number.
	maxCount = 1_000_000
)

// A Form is a question as a client of the Model Context Protocol asks it: the
// parameters of elicitation/create.
type Form struct {
	Mode    string          `json:"mode"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"requestedSchema"`
}

// Titles of the choices.
var titles = map[Choice]string{
	ThisCall: "Allow the first of these calls",
	Waiting:  "Allow all calls shown above",
	Next:     "Allow so many calls alike (see the number)",
	ThisTool: "Allow all calls of this tool in this execution",
	Session:  "Allow all calls of this tool in this session",
	Always:   "Always allow this tool (writes the rule above)",
	No:       "Refuse all calls shown above",
	NoTool:   "Refuse all calls of this tool in this execution",
}

// Form returns the question as a form; ok is false where it is too long for one, and
// where a server asks: see Request. A client of a revision before 2025-11-25 knows no
// oneOf: see legacy.
func (q *Question) Form(legacy bool) (form Form, ok bool) {
	if q.Asks != nil {
		return Form{}, false
	}
	text := "Sallyport: do you allow this?\n\n" + q.Text()
	if q.Always != nil {
		text += fmt.Sprintf("\n\"always\" writes to %s:\n%s\n", invisible.Line(q.Always.File), invisible.Escape(q.Always.Text))
	}
	if len(text) > maxForm {
		return Form{}, false
	}
	answer := map[string]any{"type": "string", "title": "Answer"}
	var words, named []string
	var each []map[string]string
	for _, c := range q.Choices {
		title := titles[c]
		if q.Waiting == 1 {
			title = strings.NewReplacer("all calls shown above", "this call", "the first of these calls", "this call").Replace(title)
		}
		if q.More > 0 && (c == Waiting || c == No) {
			title += fmt.Sprintf(", and %d more alike", q.More)
		}
		if c == ThisCall && q.Waiting == 1 && slices.Contains(q.Choices, Waiting) {
			continue // it says the same
		}
		words, named = append(words, string(c)), append(named, title)
		each = append(each, map[string]string{"const": string(c), "title": title})
	}
	if legacy {
		answer["enum"], answer["enumNames"] = words, named
	} else {
		answer["oneOf"] = each
	}
	properties := map[string]any{
		"answer": answer,
		"words":  map[string]any{"type": "string", "title": "Why not", "description": "The code gets this with the error.", "maxLength": maxWords},
	}
	if slices.Contains(q.Choices, Next) {
		properties["count"] = map[string]any{"type": "integer", "title": "Number of calls", "minimum": 1, "maximum": maxCount}
		properties["vary"] = map[string]any{"type": "string", "title": "Arguments that may differ in those calls", "description": "Names, separated by commas. Others must be equal."}
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": []string{"answer"}})
	if err != nil { // cannot happen: strings and numbers
		return Form{}, false
	}
	return Form{"form", text, schema}, true
}

// Again returns the form with a reason why an answer to it does not count.
func (f Form) Again(why error) Form {
	f.Message = "This answer does not count: " + label(why.Error(), 500) + ". Please answer again.\n\n" + f.Message
	return f
}

// Parse reads what a client answered to a form: the action, and what the person
// filled in. answered is false where the person did not decide. By is left to the
// caller.
func (q *Question) Parse(action string, content map[string]any) (a Answer, answered bool, err error) {
	a = Answer{ID: q.ID, Revision: q.Revision}
	switch action {
	case "decline":
		a.Choice = No
		return a, true, nil
	case "cancel":
		return Answer{}, false, nil
	case "accept":
	default:
		return Answer{}, false, errors.New("the answer must be accept, decline or cancel")
	}
	choice, _ := content["answer"].(string)
	if a.Choice = Choice(choice); !slices.Contains(q.Choices, a.Choice) {
		return Answer{}, false, fmt.Errorf("choose one of the answers: %s", strings.Join(names(q.Choices), ", "))
	}
	switch a.Choice {
	case No, NoTool:
		a.Words, _ = content["words"].(string)
	case Next:
		n, _ := content["count"].(float64)
		if n != math.Trunc(n) || n < 1 || n > maxCount {
			return Answer{}, false, fmt.Errorf("say how many calls: a whole number from 1 to %d", maxCount)
		}
		a.Count = int(n)
		vary, is := content["vary"].(string)
		if !is && content["vary"] != nil {
			return Answer{}, false, errors.New("the arguments that may differ must be names, separated by commas")
		}
		for _, name := range strings.Split(vary, ",") {
			if name = strings.TrimSpace(name); name != "" {
				a.Vary = append(a.Vary, name)
			}
		}
	}
	return a, true, nil
}
