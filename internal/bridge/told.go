package bridge

import (
	"context"
	"encoding/json"

	"sallyport/internal/hidden"
	"sallyport/internal/pins"
	"sallyport/internal/upstream"
)

// told are a server's tools as code may read them when it asks for the server's
// own words: without hidden characters, and, where changes are refused, in the
// form that was accepted.
func (b *Bridge) told(ctx context.Context, name string, tools []upstream.Tool) ([]json.RawMessage, error) {
	var s pins.Server
	if d, ok := b.current(false).servers[name]; ok && b.config.RefuseChanged {
		s = Pinned(d)
		if _, err := b.describe(ctx, name); err != nil { // compares them, if that was not done
			return nil, err
		}
		if _, err := b.checked(s); err != nil {
			return nil, err
		}
	}
	vetted := b.vetted(s)
	list := make([]json.RawMessage, 0, len(tools))
	for i := range tools {
		raw := tools[i].Raw
		form, ok := vetted(pins.Tool, tools[i].Name)
		if !ok {
			continue
		}
		if form != nil {
			if len(form.Input) == 0 {
				form.Input = anyObject
			}
			raw = form.JSON(pins.Tool.Key(), tools[i].Name)
		}
		list = append(list, hidden.StripJSON(raw, hidden.Item))
	}
	return list, nil
}
