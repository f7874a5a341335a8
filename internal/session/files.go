package session

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// put puts files into the workspace of the session's sandbox.
func (s *Session) put(ctx context.Context, files []sandbox.File) error {
	if len(files) == 0 {
		return nil
	}
	var size int64
	for _, f := range files {
		size += int64(len(f.Data))
	}
	var sent []Outgoing
	for _, f := range files {
		sent = append(sent, Outgoing{f.Path, f.Mode, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.Data)), nil }})
	}
	p := NewParts(sent)
	defer p.Close()
	if err := s.instance.ask(ctx, s.config.Grace, taskTime(size), wire.TaskPutIn, giving(p.Next)); err != nil {
		return fmt.Errorf("putting files into the sandbox: %w", err)
	}
	return nil
}

// giving answers a guest's requests for parts of files.
func giving(next func() (*wire.TaskFile, error)) func(wire.Call) (any, error) {
	return func(call wire.Call) (any, error) {
		if call.Method != wire.MethodTaskNext {
			return nil, unexpected(call)
		}
		return next()
	}
}

// Outgoing is a file for a workspace.
type Outgoing struct {
	Path string // below /workspace
	Mode uint32 // 0 is 0644
	Open func() (io.ReadCloser, error)
}

// Parts reads files part by part, with their parent directories. One part is held in
// memory.
type Parts struct {
	files   []Outgoing
	made    map[string]bool
	content io.ReadCloser // of the first file; nil: it is not open
	from    *bufio.Reader
	part    []byte
}

// NewParts returns the parts of files. The caller calls Close.
func NewParts(files []Outgoing) *Parts { return &Parts{files: files, made: map[string]bool{}} }

// Close closes the file that is being read.
func (p *Parts) Close() {
	if p.content != nil {
		_ = p.content.Close() // it was only read
		p.content = nil
	}
}

// Next returns the next part, which is valid until the next call; nil at the end.
func (p *Parts) Next() (*wire.TaskFile, error) {
	if len(p.files) == 0 {
		return nil, nil
	}
	f := p.files[0]
	if p.content == nil {
		if dir := p.missing(path.Dir(f.Path)); dir != "" {
			p.made[dir] = true
			return &wire.TaskFile{Path: dir, Mode: 0o755, Directory: true}, nil
		}
		content, err := f.Open()
		if err != nil {
			return nil, err
		}
		p.content, p.from = content, bufio.NewReader(content)
		if p.part == nil {
			p.part = make([]byte, wire.TaskPartSize)
		}
	}
	mode := f.Mode & 0o777
	if mode == 0 {
		mode = 0o644
	}
	n, err := io.ReadFull(p.from, p.part)
	if err == nil {
		_, err = p.from.Peek(1)
	}
	part := &wire.TaskFile{Path: f.Path, Mode: mode, Data: p.part[:n], More: err == nil}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		p.Close()
		p.files = p.files[1:]
	default:
		return nil, err
	}
	return part, nil
}

// missing returns the topmost parent directory of a file that has not been
// created yet.
func (p *Parts) missing(dir string) string {
	if dir == "." || p.made[dir] {
		return ""
	}
	if above := p.missing(path.Dir(dir)); above != "" {
		return above
	}
	return dir
}

// Collect returns which of the Artifacts of an outcome are wanted, in any order, and what
// opens a file for each. They come from the guest and must not be trusted. Without a
// Create, content is kept in memory as Outcome.Collected: what is wanted must be little.
type Collect func(*Outcome) ([]wire.Artifact, Create)

// Create opens a file before its content is asked for, which is written as it arrives: at
// most size bytes. done is called once, with false if the file is incomplete and must be
// dropped. The path and what the file is about come from the sandbox.
type Create func(path string, size int64, about string) (content io.Writer, done func(whole bool) error, err error)

// LeftOut is a wanted file that was not received.
type LeftOut struct{ Path, Why string }

// collect receives the files that a request wants, within the request's time. A
// failure does not lose the result, unless time runs out: a guest that
// withholds files has not finished.
func (b *instance) collect(ctx context.Context, config config, req Request, out *Outcome) {
	if req.Collect == nil || len(out.Artifacts) == 0 || out.Reason != "" || b.dead() {
		return
	}
	c := &collector{room: b.limits.WorkspaceBytes}
	c.wanted, c.create = req.Collect(out)
	if len(c.wanted) == 0 {
		return
	}
	var size int64
	for _, a := range c.wanted {
		size += min(max(0, a.Size), c.room-size)
	}
	limit, began := max(req.Timeout-out.Own, taskTime(size)), time.Now()
	err := b.ask(ctx, config.Grace, limit, wire.TaskTakeNamed, c.take)
	c.end(err)
	out.Own += time.Since(began)
	out.Collected, out.LeftOut = c.got, c.left
	if err == nil {
		return
	}
	b.log.Info("files of an execution could not be read", "error", err)
	killed := b.dead()
	if errors.Is(err, errSlow) && out.End != TimedOut && out.End != Cancelled {
		out.End, out.Limit, out.Survived, out.Fetching = TimedOut, req.Timeout, true, true
	}
	if killed {
		out.Survived, out.Reason = false, "the sandbox was lost while its files were fetched: "+err.Error()
	}
}

var errTooLarge = errors.New("the files are larger than the workspace may be (limits.workspace)")

// collector asks a guest for files, one after another. It takes at most room
// bytes, whatever sizes the guest announces.
type collector struct {
	create Create // nil: into memory
	wanted []wire.Artifact
	room   int64

	current wire.Artifact
	content io.Writer
	done    func(bool) error // nil: no file is open
	size    int64            // received so far
	mode    uint32
	why     string // why the current file is left out; the rest of it is ignored

	got  []sandbox.File
	left []LeftOut
}

func (c *collector) take(call wire.Call) (any, error) {
	switch call.Method {
	case wire.MethodTaskNext:
		c.leave("the sandbox did not send it")
		for len(c.wanted) > 0 {
			c.current, c.wanted, c.size, c.why = c.wanted[0], c.wanted[1:], 0, ""
			if c.current.Size > c.room {
				c.why = errTooLarge.Error()
			} else {
				c.begin()
			}
			if c.why == "" {
				return wire.TaskFile{Path: c.current.Path}, nil
			}
			c.leave(c.why)
		}
		return nil, nil
	case wire.MethodTaskFile:
		f, err := wire.DecodeTaskFile(call.Params)
		if err != nil {
			return nil, err
		}
		return nil, c.part(f)
	}
	return nil, unexpected(call)
}

func (c *collector) part(f wire.TaskFile) error {
	if f.Path == "" || f.Path != c.current.Path {
		return fmt.Errorf("the sandbox sent a file other than %s", wire.OneLine(c.current.Path))
	}
	if f.LeftOut != "" {
		c.leave(wire.OneLine(f.LeftOut))
		return nil
	}
	if c.room -= int64(len(f.Data)); c.room < 0 {
		return errTooLarge
	}
	c.size += int64(len(f.Data))
	if c.size > max(0, c.current.Size) {
		c.why = "it is larger than it was when the code ended"
	}
	c.mode = f.Mode & 0o777
	if c.why == "" {
		if _, err := c.content.Write(f.Data); err != nil {
			c.why = err.Error()
		}
	}
	switch {
	case f.More:
	case c.why != "":
		c.leave(c.why)
	default:
		done := c.done
		c.current, c.done = wire.Artifact{}, nil // done is called once
		if err := done(true); err != nil {
			c.left = append(c.left, LeftOut{f.Path, err.Error()})
		}
	}
	return nil
}

// begin opens the current file.
func (c *collector) begin() {
	a := c.current
	if c.create == nil {
		var data bytes.Buffer
		c.content, c.done = &data, func(whole bool) error {
			if whole {
				c.got = append(c.got, sandbox.File{Path: a.Path, Data: data.Bytes(), Mode: c.mode})
			}
			return nil
		}
		return
	}
	var err error
	if c.content, c.done, err = c.create(a.Path, max(0, a.Size), a.About); err != nil {
		c.why = err.Error()
	}
}

// leave drops the current file, if any.
func (c *collector) leave(why string) {
	if c.done != nil {
		_ = c.done(false)
		c.done = nil
	}
	if c.current.Path != "" {
		c.left = append(c.left, LeftOut{c.current.Path, why})
	}
	c.current = wire.Artifact{}
}

// end drops the files that have not arrived.
func (c *collector) end(err error) {
	why := "the sandbox did not send it"
	if err != nil {
		why = err.Error()
	}
	c.leave(why)
	for _, a := range c.wanted {
		c.current = a
		c.leave(why)
	}
	c.wanted = nil
}
