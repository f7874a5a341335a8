package broker

import (
	"io"
	"io/fs"
	"strings"

	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/session/capture"
)

// kept is a stream of a run as lines: its head and its tail, where it is longer
// than limit, with how many bytes were left out.
func (b *batchRuns) kept(id string, stderr bool, limit int64) ([]string, int64) {
	data, err := b.output(id, stderr)
	if err != nil {
		b.log.Warn("the output of a run", "run", id, "error", err)
	}
	kept := captured(strings.ToValidUTF8(string(data), "\ufffd"), int(limit))
	return lines(kept), kept.Omitted
}

// output is all that a run wrote to a stream, as far as it came back.
func (b *batchRuns) output(id string, stderr bool) ([]byte, error) {
	f, err := b.Runs.Output(id, stderr)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// captured returns the first and last halves of limit bytes, in whole lines
// where there are some.
func captured(text string, limit int) capture.Output {
	if len(text) <= limit {
		return capture.Output{Head: text}
	}
	head, tail := text[:limit/2], text[len(text)-limit/2:]
	if i := strings.LastIndexByte(head, '\n'); i >= 0 {
		head = head[:i+1]
	}
	if i := strings.IndexByte(tail, '\n'); i >= 0 && i+1 < len(tail) {
		tail = tail[i+1:]
	}
	return capture.Output{
		Head: strings.ToValidUTF8(head, ""), Tail: strings.ToValidUTF8(tail, ""), Omitted: int64(len(text) - len(head) - len(tail)),
	}
}

// images are the pictures that a run left, as far as they fit into an answer, and the
// names of the others.
// What a file is says its content, and not its name.
func (b *batchRuns) images(record *runs.Record) (out []Image, unshown []string) {
	if !record.Fetched {
		return nil, nil
	}
	root, err := b.Runs.Files(record.ID)
	if err != nil {
		b.log.Warn("the files of a run", "run", record.ID, "error", err)
		return nil, nil
	}
	defer root.Close()
	for _, f := range record.Files {
		if f.Size == 0 || !isPicture(f.Path) && f.Size > maxHeld {
			continue
		}
		if len(out) == maxImages || f.Size > maxPicture {
			if isPicture(f.Path) {
				unshown = append(unshown, unshownName(f.Path, f.Size, maxPicture))
			}
			continue
		}
		i := Image{Path: f.Path}
		fault, err := i.read(f.Size, func() (fs.File, error) { return root.Open(f.Path) })
		switch {
		case err != nil || i.MIMEType == "":
		case fault != "":
			unshown = append(unshown, clip(f.Path)+" ("+fault+")")
		default:
			out = append(out, i)
		}
	}
	return out, unshown
}
