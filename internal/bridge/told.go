package bridge

import (
	"context"
	"encoding/json"
	"slices"

	"sallyport/internal/hidden"
	"sallyport/internal/pins"
	"sallyport/internal/upstream"
)

// told are a server's tools as code may read them when it asks for the server's
// own words: these, except where they hide characters, and, where changes are
// refused, in the form that was accepted.
func (b *Bridge) told(ctx context.Context, name string, tools []upstream.Tool) ([]json.RawMessage, error) {
	var report pins.Report
	var pinned pins.Server
	if d, ok := b.current(false).servers[name]; ok && b.config.RefuseChanged {
		pinned = Pinned(d)
		if _, err := b.describe(ctx, name); err != nil { // compares them, if that was not done
			return nil, err
		}
		var err error
		if report, err = b.checked(pinned); err != nil {
			return nil, err
		}
	}
	list := make([]json.RawMessage, 0, len(tools))
	for i := range tools {
		t := &tools[i]
		switch {
		case slices.Contains(report.New, t.Name):
		case slices.Contains(report.Changed, t.Name):
			form, _, err := b.config.Pins.Form(pinned, t.Name)
			if err == nil && form != nil {
				list = append(list, inOurWords(t.Name, form.Title, form.Description, form.Input, form.Output))
			}
		case len(hidden.In(t.Title)) > 0 || len(hidden.In(t.Description)) > 0:
			list = append(list, inOurWords(t.Name, t.Title, t.Description, t.InputSchema, t.OutputSchema))
		default:
			list = append(list, t.Raw)
		}
	}
	return list, nil
}

// inOurWords is a tool as a server says it, without what is not seen.
func inOurWords(name, title, description string, input, output json.RawMessage) json.RawMessage {
	if len(input) == 0 {
		input = json.RawMessage(`{"type":"object"}`)
	}
	raw, err := json.Marshal(struct {
		Name         string          `json:"name"`
		Title        string          `json:"title,omitempty"`
		Description  string          `json:"description,omitempty"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	}{name, hidden.Strip(title), hidden.Strip(description), input, output})
	if err != nil { // cannot happen: texts, and JSON that was read
		return json.RawMessage("null")
	}
	return raw
}
