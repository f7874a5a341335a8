package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"sallyport/internal/sandbox"
	"sallyport/internal/wire"
)

// put puts files into the workspace of the session's sandbox.
func (s *Session) put(ctx context.Context, files []sandbox.File) error {
	if len(files) == 0 {
		return nil
	}
	f := &placer{files: files, made: map[string]bool{}}
	if err := s.box.ask(ctx, s.config.Grace, wire.TaskPutIn, f.give); err != nil {
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

// collect takes the files out that a request wants of what its code has left.
// That they could not be read is no reason to lose the result.
func (s *Session) collect(ctx context.Context, req Request, out *Outcome) {
	if req.Collect == nil || len(out.Artifacts) == 0 || out.Reason != "" || s.box.dead() {
		return
	}
	wanted := req.Collect(out.Artifacts)
	if len(wanted) == 0 {
		return
	}
	c := &collector{wanted: wanted}
	if err := s.box.ask(ctx, s.config.Grace, wire.TaskTakeNamed, c.take); err != nil {
		s.log.Info("files of an execution could not be read", "error", err)
	}
	out.Collected = c.got
}

// collector asks a guest for files, one after the other.
type collector struct {
	wanted  []wire.Artifact
	current wire.Artifact
	data    []byte
	got     []sandbox.File
}

func (c *collector) take(call wire.Call) (any, error) {
	switch call.Method {
	case wire.MethodTaskNext:
		if len(c.wanted) == 0 {
			return nil, nil
		}
		c.current, c.wanted, c.data = c.wanted[0], c.wanted[1:], nil
		return wire.TaskFile{Path: c.current.Path}, nil
	case wire.MethodTaskFile:
		var f wire.TaskFile
		if err := json.Unmarshal(call.Params, &f); err != nil {
			return nil, errors.New("the sandbox sent what is no part of a file")
		}
		return nil, c.part(f)
	}
	return nil, fmt.Errorf("the sandbox asked for %s", clean(call.Method))
}

func (c *collector) part(f wire.TaskFile) error {
	if f.Path == "" || f.Path != c.current.Path || int64(len(c.data)+len(f.Data)) > c.current.Size {
		return fmt.Errorf("the sandbox sent other than %s as it was", clean(c.current.Path))
	}
	c.data = append(c.data, f.Data...)
	if f.More && f.LeftOut == "" {
		return nil
	}
	if f.LeftOut == "" {
		c.got = append(c.got, sandbox.File{Path: f.Path, Data: c.data, Mode: f.Mode & 0o777})
	}
	c.current, c.data = wire.Artifact{}, nil // once: nothing more comes of it
	return nil
}
