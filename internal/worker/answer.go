package worker

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/capture"
	"github.com/sallyport/sallyport/internal/wire"
)

// text returns the captured part of a stream.
func text(c capture.Output) string {
	s := c.Head
	if c.Omitted > 0 {
		s += fmt.Sprintf("\n[... %d bytes left out ...]\n%s", c.Omitted, c.Tail)
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// collector chooses the files that are sent back.
type collector struct {
	wants *job.Wanted
	room  int64
}

// maxCollected bounds the number of files that are sent back.
const maxCollected = 500

// choose returns the files that fit, in the order in which the guest reports
// them. The rest are reported as left out.
func (c *collector) choose(o *session.Outcome) ([]wire.Artifact, session.Create) {
	if !c.wants.Files {
		return nil, nil
	}
	room := min(c.wants.FileBytes, c.room*3/4) // base64
	var some []wire.Artifact
	for _, a := range o.Artifacts {
		if a.Size < 0 || a.Size > room || len(some) == maxCollected {
			continue
		}
		room -= a.Size
		some = append(some, a)
	}
	return some, nil
}

func (c *collector) result(left []wire.Artifact, got []sandbox.File) (files []job.File, out []job.Omitted) {
	if !c.wants.Files {
		return nil, nil
	}
	have := map[string]bool{}
	for _, f := range got {
		have[f.Path] = true
		files = append(files, job.File{Path: f.Path, Data: f.Data, Mode: f.Mode})
	}
	for _, a := range left {
		if !have[a.Path] {
			out = append(out, job.Omitted{Path: a.Path, Size: a.Size})
		}
	}
	return files, out
}

// What RunPod accepts as a result: less for jobs without a client waiting on an
// open request. The difference from its own limits is for what surrounds the
// output.
const (
	asyncRoom = 10<<20 - 256<<10
	syncRoom  = 20<<20 - 256<<10
)

func room(id string) int64 {
	if strings.HasPrefix(id, "sync-") {
		return syncRoom
	}
	return asyncRoom
}

// fit leaves out files, and then output, until the result is small enough.
func fit(r *Result, room int64) {
	for {
		b, err := json.Marshal(r)
		if err != nil || int64(len(b)) <= room || r.Output == nil {
			return
		}
		a := r.Output.Sallyport
		if n := len(a.Files); n > 0 {
			f := a.Files[n-1]
			a.Files = a.Files[:n-1]
			a.LeftOut = append(a.LeftOut, job.Omitted{Path: f.Path, Size: int64(len(f.Data))})
			continue
		}
		if a.Truncated == nil {
			a.Truncated = &job.Truncated{}
		}
		longest, cut := &r.Output.Stdout, &a.Truncated.Stdout
		if len(r.Output.Stderr) > len(*longest) {
			longest, cut = &r.Output.Stderr, &a.Truncated.Stderr
		}
		half := len(*longest) / 2
		if half == 0 {
			return
		}
		*cut += int64(len(*longest) - half)
		*longest = strings.ToValidUTF8((*longest)[:half], "")
	}
}
