package broker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/artifact"
	"github.com/sallyport/sallyport/internal/picture"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/wire"
)

const (
	// maxImages is how many pictures an answer has.
	maxImages = 8
	// maxPicture is the most that a picture has before it is made small enough.
	maxPicture = 32 << 20
	// maxHeld bounds a picture that is in memory while the files of an execution
	// come, and maxHeldBytes all of them together. Larger ones are read back.
	maxHeld      = 2 << 20
	maxHeldBytes = 5 << 20
)

// maxNamed bounds how many of the files that code left an answer names. maxWhy and
// maxLeftOut bound the reasons why some did not come, and their names.
const (
	maxNamed   = 200
	maxWhy     = 3
	maxLeftOut = 10
)

// intake takes in the files that an execution left: what is kept goes to the store, and
// pictures go into the answer.
type intake struct {
	to       *artifact.Intake // nil: nothing is kept
	kept     map[string]artifact.File
	id       string // of the record that names what is kept
	pictures []wire.Artifact
	held     map[string][]byte // by path; nil: it has not come, or not whole
	lost     []session.LeftOut // what came and is not kept
	failed   error             // of the store: it takes no more
}

// collect implements session.Collect.
func (x *execution) collect(out *session.Outcome) ([]wire.Artifact, session.Create) {
	if x.req.TakeFiles != nil {
		return out.Artifacts, x.create
	}
	t := &intake{held: map[string][]byte{}}
	x.intake = t
	store, key := x.broker.config.Artifacts, x.session.Key()
	keeps := store.Keeps()
	most := int64(maxHeld)
	if keeps {
		most = maxPicture
		t.to = store.Begin(artifact.Origin{
			Owner: key.Owner, Client: x.req.Principal.Client, Session: key.Name, Own: key.Client != "",
			Execution: out.Number, Request: x.req.RequestID,
		})
	}
	total := int64(0)
	for _, f := range out.Artifacts {
		if !isPicture(f.Path) || f.Size <= 0 || f.Size > most || len(t.pictures) == maxImages {
			continue
		}
		if f.Size <= maxHeld && total+f.Size <= maxHeldBytes {
			total += f.Size
			t.held[f.Path] = nil
		} else if !keeps {
			continue
		}
		t.pictures = append(t.pictures, f)
	}
	if keeps {
		return out.Artifacts, x.create
	}
	return t.pictures, x.create
}

// create implements session.Create.
func (x *execution) create(path string, size int64, about string) (io.Writer, func(bool) error, error) {
	if x.req.TakeFiles != nil {
		return x.req.TakeFiles(path)
	}
	t := x.intake
	f := &arriving{intake: t, path: path}
	_, f.hold = t.held[path]
	var err error
	if t.to == nil {
		return f, f.end, nil
	}
	if err = t.failed; err == nil {
		f.to, f.done, err = t.to.Create(path, size, about)
	}
	if err != nil {
		if err = t.fails(err); !f.hold {
			return nil, nil, err
		}
		t.lost = append(t.lost, session.LeftOut{Path: path, Why: err.Error()})
	}
	return f, f.end, nil
}

// fails returns the reason of an error without names of the host's files. If it is one
// of the disk, later files would have it, too.
func (t *intake) fails(err error) error {
	var of *fs.PathError
	if !errors.As(err, &of) {
		return err
	}
	if t.failed == nil {
		t.failed = err
	}
	return of.Err
}

// arriving is a file while it comes.
type arriving struct {
	intake *intake
	path   string
	to     io.Writer        // nil: it is not kept
	done   func(bool) error // of to
	hold   bool
	data   []byte
}

func (f *arriving) Write(p []byte) (int, error) {
	if f.hold {
		f.data = append(f.data, p...)
	}
	if f.to == nil {
		return len(p), nil
	}
	n, err := f.to.Write(p)
	if err == nil {
		return n, nil
	}
	err = f.intake.fails(err)
	if !f.hold {
		return n, err
	}
	f.drop(err)
	return len(p), nil
}

// drop has the file not kept.
func (f *arriving) drop(why error) {
	_ = f.done(false)
	f.to = nil
	f.intake.lost = append(f.intake.lost, session.LeftOut{Path: f.path, Why: why.Error()})
}

func (f *arriving) end(whole bool) error {
	if f.hold && whole {
		f.intake.held[f.path] = f.data
	}
	if f.to == nil {
		return nil
	}
	err := f.done(whole)
	if err != nil {
		err = f.intake.fails(err)
	}
	return err
}

// close drops what was taken in and is not kept.
func (x *execution) close() {
	if x.intake != nil && x.intake.to != nil {
		x.intake.to.Close()
	}
}

// keep keeps the files that an execution left, before its result names them.
func (x *execution) keep(out *session.Outcome) (notes []string) {
	t := x.intake
	if t == nil || t.to == nil {
		return nil
	}
	record, err := t.to.Commit()
	if err != nil {
		t.failed = err
		notes = append(notes, "the files of this call are not kept: "+t.fails(err).Error())
	}
	if t.failed != nil {
		x.broker.config.Logger.Warn("files of an execution are not kept", "request", x.req.RequestID, "error", t.failed)
	}
	if record != nil && err == nil {
		if record.Own {
			x.req.client.began(record.ID)
		}
		t.id, t.kept = record.ID, make(map[string]artifact.File, len(record.Files))
		for _, f := range record.Files {
			t.kept[f.Path] = f
		}
	}
	return notes
}

// artifacts are the files that an execution left, as its result names them.
func (x *execution) artifacts(out *session.Outcome) (list []Artifact) {
	for _, a := range out.Artifacts[:min(maxNamed, len(out.Artifacts))] {
		named := Artifact{Path: a.Path, Size: a.Size}
		if x.intake != nil {
			if f, ok := x.intake.kept[a.Path]; ok {
				named.Size, named.MIMEType, named.URI = f.Size, f.Type, artifact.URI(x.intake.id, f.Path)
			}
		}
		list = append(list, named)
	}
	return list
}

// showPictures adds the pictures that an execution left to its result, in the order in
// which they were made, and names those that it does not show.
func (x *execution) showPictures(r *Result, out *session.Outcome) {
	t, most := x.intake, int64(maxHeld)
	if t == nil {
		t = &intake{}
	} else if t.to != nil {
		most = maxPicture
	}
	for _, f := range out.Artifacts {
		if !isPicture(f.Path) || f.Size <= 0 {
			continue
		}
		if !slices.ContainsFunc(t.pictures, func(p wire.Artifact) bool { return p.Path == f.Path }) {
			r.Unshown = append(r.Unshown, unshownName(f.Path, f.Size, most))
			continue
		}
		i := Image{Path: f.Path, About: f.About}
		fault := ""
		if data := t.held[f.Path]; data != nil {
			fault = i.shrink(data)
		} else if kept, ok := t.kept[f.Path]; ok {
			var err error
			if fault, err = i.read(kept.Size, func() (fs.File, error) { return x.broker.config.Artifacts.Open(kept) }); err != nil {
				x.broker.config.Logger.Warn("a picture cannot be read", "error", err)
				continue
			}
		}
		switch {
		case i.MIMEType == "":
		case fault != "":
			r.Unshown = append(r.Unshown, clip(f.Path)+" ("+fault+")")
		default:
			r.Images = append(r.Images, i)
		}
	}
}

// shrink makes an image of a picture.
func (i *Image) shrink(data []byte) (fault string) {
	p, fault := picture.Shrink(data)
	i.MIMEType, i.Data, i.From = p.MIMEType, p.Data, p.From
	return fault
}

// read makes an image of a picture in a file.
func (i *Image) read(size int64, open func() (fs.File, error)) (fault string, err error) {
	f, err := open()
	if err != nil {
		return "", err
	}
	defer f.Close()
	p, fault, err := picture.Read(f, size)
	i.MIMEType, i.Data, i.From = p.MIMEType, p.Data, p.From
	return fault, err
}

// isPicture says whether a file is a picture by its name.
func isPicture(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp":
		return true
	}
	return false
}

// unshownName names a picture that is not in an answer, with the reason unless the
// answer was full.
func unshownName(path string, size, most int64) string {
	if size > most {
		return fmt.Sprintf("%s (larger than %d MB)", clip(path), most>>20)
	}
	return clip(path)
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
	what, left := "not fetched: ", out.LeftOut
	if x.intake != nil && x.intake.to != nil {
		what, left = "not kept: ", append(slices.Clone(left), x.intake.lost...)
	}
	return append(notes, leftOut(what, left)...)
}

// leftOut names files once for each reason.
func leftOut(what string, left []session.LeftOut) (notes []string) {
	for n := 0; len(left) > 0; n++ {
		if n == maxWhy {
			return append(notes, fmt.Sprintf("%s%d more files", what, len(left)))
		}
		why := left[0].Why
		var names []string
		count := 0
		left = slices.DeleteFunc(slices.Clone(left), func(f session.LeftOut) bool {
			if f.Why != why {
				return false
			}
			if count++; count <= maxLeftOut {
				names = append(names, shown(f.Path))
			}
			return true
		})
		if more := count - maxLeftOut; more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		notes = append(notes, what+strings.Join(names, ", ")+": "+why)
	}
	return notes
}
