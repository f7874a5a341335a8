package broker

import (
	"io"
	"net/http"
	"strings"

	"sallyport/internal/runs"
	"sallyport/internal/session"
)

// What of the files of a run goes into its answer: pictures, few and small
// enough for a client to show.
const (
	maxImages     = 8
	maxImage      = 2 << 20
	maxImageBytes = 5 << 20 // of all together
)

// kept is a stream of a run as lines: its head and its tail, where it is longer
// than limit, with how many bytes were left out.
func (b *Broker) kept(id string, stderr bool, limit int64) ([]string, int64) {
	f, err := b.config.Runs.Output(id, stderr)
	if err != nil {
		b.log.Warn("the output of a run", "run", id, "error", err)
		return nil, 0
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		b.log.Warn("the output of a run", "run", id, "error", err)
	}
	kept := captured(strings.ToValidUTF8(string(data), "\ufffd"), int(limit))
	return lines(kept), kept.Omitted
}

// captured is a text's first and last halves of limit bytes, in whole lines
// where there are some.
func captured(text string, limit int) session.Captured {
	if len(text) <= limit {
		return session.Captured{Head: text}
	}
	head, tail := text[:limit/2], text[len(text)-limit/2:]
	if i := strings.LastIndexByte(head, '\n'); i >= 0 {
		head = head[:i+1]
	}
	if i := strings.IndexByte(tail, '\n'); i >= 0 && i+1 < len(tail) {
		tail = tail[i+1:]
	}
	return session.Captured{
		Head: strings.ToValidUTF8(head, ""), Tail: strings.ToValidUTF8(tail, ""), Omitted: int64(len(text) - len(head) - len(tail)),
	}
}

// images are the pictures that a run left, as far as they fit into an answer.
// What a file is says its content, and not its name.
func (b *Broker) images(record *runs.Record) []Image {
	if !record.Fetched {
		return nil
	}
	root, err := b.config.Runs.Files(record.ID)
	if err != nil {
		b.log.Warn("the files of a run", "run", record.ID, "error", err)
		return nil
	}
	defer root.Close()
	var out []Image
	total := int64(0)
	for _, f := range record.Files {
		if f.Size == 0 || f.Size > maxImage || total+f.Size > maxImageBytes || len(out) == maxImages {
			continue
		}
		data, err := root.ReadFile(f.Path)
		if err != nil || int64(len(data)) != f.Size {
			continue
		}
		if kind := imageType(data); kind != "" {
			out = append(out, Image{Path: f.Path, MIMEType: kind, Data: data})
			total += f.Size
		}
	}
	return out
}

// imageType is the type of a picture that clients show, or empty.
func imageType(data []byte) string {
	switch kind := http.DetectContentType(data); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return kind
	}
	return ""
}
