package broker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	_ "image/gif" // for image.DecodeConfig
	_ "image/jpeg"
	_ "image/png"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/capture"
	"github.com/sallyport/sallyport/internal/wire"
)

// What of the files of a run goes into its answer: pictures, few and small
// enough for a client to show.
const (
	maxImages     = 8
	maxImage      = 2 << 20
	maxImageBytes = 5 << 20 // of all together
	maxPixels     = 8000    // in width and in height: APIs refuse more
)

// maxNamed bounds how many of the files that code left an answer names, and
// maxLeftOut how many of those that could not be fetched.
const (
	maxNamed   = 200
	maxLeftOut = 10
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
		if !fits(out, f.Size) {
			if picture(f.Path) {
				unshown = append(unshown, unshownName(f.Path, f.Size))
			}
			continue
		}
		data, err := root.ReadFile(f.Path)
		if err != nil || int64(len(data)) != f.Size {
			continue
		}
		switch kind, fault := imageType(data); {
		case kind == "":
		case fault != "":
			unshown = append(unshown, clip(f.Path)+" ("+fault+")")
		default:
			out = append(out, Image{Path: f.Path, MIMEType: kind, Data: data})
		}
	}
	return out, unshown
}

// fits says whether an answer with these pictures has room for one more.
func fits(images []Image, size int64) bool {
	total := size
	for _, i := range images {
		total += int64(len(i.Data))
	}
	return size > 0 && size <= maxImage && total <= maxImageBytes && len(images) < maxImages
}

// wanted are the files of an execution that its answer is to bring: all of them,
// or those that are pictures by their names.
func (x *execution) wanted(left []wire.Artifact) []wire.Artifact {
	if x.req.TakeFiles != nil {
		return left
	}
	var some []wire.Artifact
	total := int64(0)
	for _, f := range left {
		if picture(f.Path) && f.Size > 0 && f.Size <= maxImage && total+f.Size <= maxImageBytes && len(some) < maxImages {
			some = append(some, f)
			total += f.Size
		}
	}
	return some
}

// picture says whether a file is a picture by its name.
func picture(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp":
		return true
	}
	return false
}

// unshownName names a picture that does not fit into an answer.
func unshownName(path string, size int64) string {
	if size > maxImage {
		return fmt.Sprintf("%s (larger than %d MB)", clip(path), maxImage>>20)
	}
	return clip(path)
}

// pictures adds the pictures that an execution left to its result, in the order in
// which they were made, and names those that do not fit.
func (x *execution) pictures(r *Result, out *session.Outcome) {
	wanted := map[string]wire.Artifact{}
	for _, f := range x.wanted(out.Artifacts) {
		wanted[f.Path] = f
	}
	for _, f := range out.Collected {
		switch kind, fault := imageType(f.Data); {
		case kind == "" || !fits(r.Images, int64(len(f.Data))):
		case fault != "":
			r.Unshown = append(r.Unshown, clip(f.Path)+" ("+fault+")")
		default:
			r.Images = append(r.Images, Image{Path: f.Path, About: wanted[f.Path].About, MIMEType: kind, Data: f.Data})
		}
	}
	for _, f := range out.Artifacts {
		if _, ok := wanted[f.Path]; !ok && picture(f.Path) && f.Size > 0 {
			r.Unshown = append(r.Unshown, unshownName(f.Path, f.Size))
		}
	}
}

// files says which files of an execution its answer lacks.
func (x *execution) files(out *session.Outcome) (notes []string) {
	switch {
	case out.MoreArtifacts && x.req.TakeFiles != nil:
		notes = append(notes, fmt.Sprintf("the code left more than %d files: no more were fetched. Pack them into one file", len(out.Artifacts)))
	case out.MoreArtifacts:
		notes = append(notes, fmt.Sprintf("the code left more than %d files: the answer has %d of them", len(out.Artifacts), min(maxNamed, len(out.Artifacts))))
	case len(out.Artifacts) > maxNamed && x.req.TakeFiles == nil:
		notes = append(notes, fmt.Sprintf("the code left %d files: the answer has %d of them", len(out.Artifacts), min(maxNamed, len(out.Artifacts))))
	}
	for _, f := range out.LeftOut[:min(maxLeftOut, len(out.LeftOut))] {
		notes = append(notes, "not fetched: "+shown(f.Path)+": "+f.Why)
	}
	if more := len(out.LeftOut) - maxLeftOut; more > 0 {
		notes = append(notes, fmt.Sprintf("not fetched: %d more files", more))
	}
	return notes
}

// imageType returns the type of a picture that clients show, or empty. fault says why a
// model cannot see it: APIs refuse a whole conversation for one picture that they cannot
// read.
func imageType(data []byte) (kind, fault string) {
	const incomplete = "incomplete"
	kind, end := http.DetectContentType(data), ""
	switch kind {
	case "image/webp":
		if int64(len(data)) < int64(binary.LittleEndian.Uint32(data[4:]))+8 {
			fault = incomplete
		}
		return kind, fault
	case "image/png":
		end = "IEND\xaeB`\x82"
	case "image/jpeg":
		end = "\xff\xd9"
	case "image/gif":
	default:
		return "", ""
	}
	size, _, err := image.DecodeConfig(bytes.NewReader(data))
	switch {
	case err != nil || !bytes.Contains(data, []byte(end)):
		fault = incomplete
	case max(size.Width, size.Height) > maxPixels:
		fault = fmt.Sprintf("%d×%d, larger than %d pixels", size.Width, size.Height, maxPixels)
	}
	return kind, fault
}
