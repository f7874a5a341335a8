package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"sallyport/internal/sandbox"
	"sallyport/internal/wire"
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
	f := &placer{files: files, made: map[string]bool{}}
	if err := s.box.ask(ctx, s.config.Grace, taskTime(size), wire.TaskPutIn, f.give); err != nil {
		return fmt.Errorf("putting files into the sandbox: %w", err)
	}
	return nil
}

// placer gives a guest files, part by part, and the directories that they lie in.
type placer struct {
	files []sandbox.File
	made  map[string]bool
	sent  int // bytes of the first file
}

func (p *placer) give(call wire.Call) (any, error) {
	if call.Method != wire.MethodTaskNext {
		return nil, fmt.Errorf("the sandbox asked for %s", clean(call.Method))
	}
	if len(p.files) == 0 {
		return nil, nil
	}
	f := p.files[0]
	if dir := p.missing(path.Dir(f.Path)); dir != "" {
		p.made[dir] = true
		return wire.TaskFile{Path: dir, Mode: 0o755, Directory: true}, nil
	}
	mode := f.Mode & 0o777
	if mode == 0 {
		mode = 0o644
	}
	part := wire.TaskFile{Path: f.Path, Mode: mode, Data: f.Data[p.sent:min(len(f.Data), p.sent+partSize)]}
	p.sent += len(part.Data)
	if p.sent < len(f.Data) {
		part.More = true
	} else {
		p.files, p.sent = p.files[1:], 0
	}
	return part, nil
}

// missing is the uppermost directory of those above a file that was not made.
func (p *placer) missing(dir string) string {
	if dir == "." || p.made[dir] {
		return ""
	}
	if above := p.missing(path.Dir(dir)); above != "" {
		return above
	}
	return dir
}

// Collect says what is done with the files that an execution left.
type Collect struct {
	// Choose names those that are wanted, in any order. All that it is given is
	// the guest's word.
	Choose func([]wire.Artifact) []wire.Artifact
	// Create begins a file, to which its content is written as it comes. done
	// is called once: with false where it did not come whole, and the file is
	// then none. With a nil Create, content is kept in memory, as
	// Outcome.Collected; Choose must name little then.
	Create func(path string) (content io.Writer, done func(whole bool) error, err error)
}

// LeftOut is a file that was wanted and could not be had.
type LeftOut struct{ Path, Why string }

// collect takes the files out that a request wants of what its code has left, in
// the time of the request. That they could not be read is no reason to lose the
// result, but for time: a guest that holds them back has not ended.
func (b *box) collect(ctx context.Context, config Config, req Request, out *Outcome) {
	if req.Collect == nil || len(out.Artifacts) == 0 || out.Reason != "" || b.dead() {
		return
	}
	c := &collector{create: req.Collect.Create, wanted: req.Collect.Choose(out.Artifacts), room: config.Spec.Limits.WorkspaceBytes}
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

// collector asks a guest for files, one after the other. No more than room
// bytes are taken, whatever the guest says of their sizes.
type collector struct {
	create func(string) (io.Writer, func(bool) error, error) // nil: into memory
	wanted []wire.Artifact
	room   int64

	current wire.Artifact
	content io.Writer
	done    func(bool) error // nil: no file is open
	size    int64            // of what came of it
	why     string           // it is left out, and what comes of it passed over

	got  []sandbox.File
	left []LeftOut
}

func (c *collector) take(call wire.Call) (any, error) {
	switch call.Method {
	case wire.MethodTaskNext:
		c.leave("the sandbox did not send it")
		if len(c.wanted) == 0 {
			return nil, nil
		}
		c.current, c.wanted, c.size, c.why = c.wanted[0], c.wanted[1:], 0, ""
		return wire.TaskFile{Path: c.current.Path}, nil
	case wire.MethodTaskFile:
		f, err := taskFile(call)
		if err != nil {
			return nil, err
		}
		return nil, c.part(f)
	}
	return nil, fmt.Errorf("the sandbox asked for %s", clean(call.Method))
}

func (c *collector) part(f wire.TaskFile) error {
	if f.Path == "" || f.Path != c.current.Path {
		return fmt.Errorf("the sandbox sent other than %s", clean(c.current.Path))
	}
	if f.LeftOut != "" {
		c.leave(clean(f.LeftOut))
		return nil
	}
	if c.room -= int64(len(f.Data)); c.room < 0 {
		return errors.New("the files are larger than the workspace may be (limits.workspace)")
	}
	c.size += int64(len(f.Data))
	if c.size > max(0, c.current.Size) {
		c.why = "it is larger than it was when the code ended"
	}
	if c.why == "" && c.done == nil {
		c.begin(f)
	}
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
		c.current, c.done = wire.Artifact{}, nil // once: nothing more comes of it
		if err := done(true); err != nil {
			c.left = append(c.left, LeftOut{f.Path, err.Error()})
		}
	}
	return nil
}

// begin opens the file that is current.
func (c *collector) begin(f wire.TaskFile) {
	if c.create == nil {
		var data bytes.Buffer
		c.content, c.done = &data, func(whole bool) error {
			if whole {
				c.got = append(c.got, sandbox.File{Path: f.Path, Data: data.Bytes(), Mode: f.Mode & 0o777})
			}
			return nil
		}
		return
	}
	var err error
	if c.content, c.done, err = c.create(f.Path); err != nil {
		c.why = err.Error()
	}
}

// leave gives the current file up, if there is one.
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

// end gives up what has not come.
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
