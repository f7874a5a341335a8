package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/shape"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// Bounds of the shapes of one server's results.
const (
	maxShapes     = 500
	maxShapesFile = 4 << 20
)

// Shapes are the learned types of what a server's tools return, for tools
// without an output schema. They are shared and must not be modified; a change
// makes new ones.
type Shapes struct {
	Format int                `json:"format"`
	Tools  map[string]Learned `json:"tools"`
}

// Learned is what calls of one tool returned.
type Learned struct {
	// Form is the FormOf the tool that was called. The shape of another form no
	// longer counts.
	Form  string       `json:"form"`
	Shape *shape.Shape `json:"shape"`
}

// Of returns the learned shape of a tool in its current form as a JSON Schema, or
// nil. A tool with an output schema has none.
func (s *Shapes) Of(t *tool.Tool) json.RawMessage {
	if s == nil || len(t.OutputSchema) > 0 {
		return nil
	}
	known, ok := s.Tools[t.Name]
	if !ok || known.Form != FormOf(t) {
		return nil
	}
	return known.Shape.Schema()
}

// FormOf returns a digest of a tool's description and schemas.
func FormOf(t *tool.Tool) string {
	// Marshal writes a schema from a server and from a file in the same way.
	raw, err := json.Marshal([]any{t.Name, t.Description, t.InputSchema, t.OutputSchema})
	if err != nil {
		return "" // a schema that is not JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:10])
}

func shapesFile(key string) string { return key + ".shapes.json" }

// Shapes returns what is known of a server's results, or nil.
func (c *Catalog) Shapes(name string) *Shapes {
	s, ok := c.server(name)
	if !ok {
		return nil
	}
	return c.shapes(s)
}

func (c *Catalog) shapes(s Server) *Shapes {
	now := c.files.stamp(shapesFile(s.Key))
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.cached(s.Key)
	if !c.files.none() && k.shapesStamp != now {
		fresh, err := c.files.readShapes(s.Key)
		if err != nil {
			c.log.Warn("catalog: a file is not usable and will be replaced", "server", s.Name, "error", err)
		}
		k.shapes, k.shapesStamp = fresh, now
	}
	return k.shapes
}

// LearnShape adds the shape of one result of a tool in this form. It does not wait
// until it is stored.
func (c *Catalog) LearnShape(server, tool, form string, seen *shape.Shape) {
	s, ok := c.server(server)
	if !ok || seen == nil || form == "" {
		return
	}
	if known := c.shapes(s); known != nil {
		if l, ok := known.Tools[tool]; ok && l.Form == form && shape.Learn(l.Shape, seen) == l.Shape {
			return
		}
	}
	c.goes(func() {
		if err := c.storeShape(s, tool, form, seen); err != nil {
			c.log.Warn("catalog: a shape cannot be stored", "server", s.Name, "error", err)
		}
	})
}

// storeShape merges a shape into the file, which other programs write, too.
func (c *Catalog) storeShape(s Server, tool, form string, seen *shape.Shape) error {
	c.learning.Lock() // the lock of the file does not exclude this program
	defer c.learning.Unlock()
	if !c.files.none() {
		unlock, err := c.files.dir.Lock(s.Key + ".shapes")
		if err != nil {
			return err
		}
		defer unlock()
	}
	fresh := &Shapes{Format: format, Tools: map[string]Learned{}}
	if old := c.shapes(s); old != nil {
		for name, l := range old.Tools {
			fresh.Tools[name] = l
		}
	}
	l := fresh.Tools[tool]
	if l.Form != form {
		l = Learned{Form: form}
	}
	l.Shape = shape.Learn(l.Shape, seen)
	if _, known := fresh.Tools[tool]; !known && len(fresh.Tools) >= maxShapes {
		return nil
	}
	fresh.Tools[tool] = l
	at := stamp{}
	if !c.files.none() {
		data, err := json.Marshal(fresh)
		if err == nil {
			err = c.files.dir.Write(shapesFile(s.Key), data)
		}
		if err != nil {
			return err
		}
		at = c.files.stamp(shapesFile(s.Key))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.cached(s.Key)
	k.shapes, k.shapesStamp = fresh, at
	return nil
}

// readShapes returns nil if there is no file. It leaves out what this package
// could not have written.
func (s files) readShapes(key string) (*Shapes, error) {
	data, err := s.dir.Read(shapesFile(key), maxShapesFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrNoPlace) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var read Shapes
	if err := json.Unmarshal(data, &read); err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir.Path(shapesFile(key)), err)
	}
	if read.Format != format || len(read.Tools) > maxShapes {
		return nil, fmt.Errorf("%s: not in the form that this program writes", s.dir.Path(shapesFile(key)))
	}
	for name, l := range read.Tools {
		if l.Shape.Sound() == nil {
			delete(read.Tools, name)
		}
	}
	return &read, nil
}
