package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxOutputs bounds how many shortened outputs the list of resources has.
const maxOutputs = 32

// outputURI is the beginning of the URIs of what executions wrote:
// sallyport://output/SESSION/CELL.
const outputURI = "sallyport://output/"

// outputs are the executions of a connection whose output did not fit into their
// answers, the latest last. It is safe for concurrent use.
type outputs struct {
	mu   sync.Mutex
	list []output
}

type output struct {
	session string
	cell    uint64
}

func (o output) uri() string { return outputURI + o.session + "/" + strconv.FormatUint(o.cell, 10) }

// add notes an execution and returns its URI.
func (o *outputs) add(session string, cell uint64) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	one := output{session, cell}
	o.list = append(slices.DeleteFunc(o.list, func(x output) bool { return x == one }), one)
	if over := len(o.list) - maxOutputs; over > 0 {
		o.list = slices.Delete(o.list, 0, over)
	}
	return one.uri()
}

// writtenBy has the shortened outputs of a connection as resources. All that the
// client's sessions wrote can be read; what was shortened is listed.
type writtenBy struct{ c *conn }

// List implements Resources.
func (w writtenBy) List(context.Context) ([]Resource, error) {
	o := &w.c.outputs
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]Resource, len(o.list))
	for i, one := range o.list {
		list[i] = Resource{
			URI: one.uri(), Name: fmt.Sprintf("output-%s-%d", one.session, one.cell), MIMEType: "text/plain",
			Description: fmt.Sprintf("all output of execution %d of session %s", one.cell, one.session),
		}
	}
	return list, nil
}

// Open implements Resources.
func (w writtenBy) Open(ctx context.Context, uri string) (*Content, error) {
	rest, ok := strings.CutPrefix(uri, outputURI)
	session, number, ok2 := strings.Cut(rest, "/")
	cell, err := strconv.ParseUint(number, 10, 64)
	if !ok || !ok2 || err != nil {
		return nil, ErrNoResource
	}
	text, err := w.c.server.config.Executor.Written(ctx, session, cell)
	if err != nil {
		return nil, errors.Join(ErrNoResource, err)
	}
	return Text("text/plain", text), nil
}
