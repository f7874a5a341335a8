package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// A Record maps a name in the store to an image.
type Record struct {
	Name string `json:"name"` // in full
	ID   string `json:"id"`   // of the image: the digest of its configuration
	// Digest is the digest of the manifest, which identifies the image in a
	// registry. Empty: it did not come from a registry.
	Digest string    `json:"digest,omitempty"`
	Source string    `json:"source"` // SourcePull, SourceLoad or SourceBuild
	Time   time.Time `json:"time"`
}

// The sources of images.
const (
	SourcePull  = "pull"
	SourceLoad  = "load"
	SourceBuild = "build"
)

const maxRecord = 1 << 20

func recordFile(full string) string { return store.FileName(full, ".json") }

// Tag gives the root, which the caller holds, the name.
func (s *Store) Tag(n Name, root *Root, digest, source string) (Record, error) {
	r := Record{Name: n.Full, ID: root.ID, Digest: digest, Source: source, Time: time.Now().UTC().Truncate(time.Second)}
	if n.ID != "" {
		return r, fmt.Errorf("%s is an ID, not a name", n.Text)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	return r, s.names().Write(recordFile(r.Name), raw)
}

func (s *Store) record(full string) (Record, error) {
	var r Record
	raw, err := s.names().Read(recordFile(full), maxRecord)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil || r.Name != full || !wholeID().MatchString(r.ID) {
		return r, fmt.Errorf("the record of %s cannot be read: remove %s", full, s.names().Path(recordFile(full)))
	}
	return r, nil
}

// Records returns all records, sorted by name. If some cannot be read, it
// returns an error with the others.
func (s *Store) Records() ([]Record, error) {
	files, err := s.names().List()
	if err != nil {
		return nil, err
	}
	var (
		out  []Record
		errs []error
	)
	for _, f := range files {
		raw, err := s.names().Read(f, maxRecord)
		if isNotExist(err) {
			continue // removed meanwhile
		}
		var r Record
		if err == nil {
			err = json.Unmarshal(raw, &r)
		}
		if err == nil && (recordFile(r.Name) != f || !wholeID().MatchString(r.ID)) {
			err = errors.New("not a record of an image")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.names().Path(f), err))
			continue
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Record) int { return strings.Compare(a.Name, b.Name) })
	return out, errors.Join(errs...)
}

// Find returns the record of a name. A name without a registry is first looked
// up among local images, then as a name on Docker Hub. The error is ErrMissing
// if there is none.
func (s *Store) Find(text string) (Record, error) {
	if s.path == "" {
		return Record{}, missing(text)
	}
	n, err := ParseName(text)
	if err == nil && n.ID == "" {
		candidates := []Name{n}
		if here := n.Here(); here.Full != n.Full {
			candidates = []Name{here, n}
		}
		for _, c := range candidates {
			r, err := s.record(c.Full)
			if err == nil || !isNotExist(err) {
				return r, err
			}
		}
	}
	if err != nil && !partID().MatchString(text) {
		return Record{}, err
	}
	all, listErr := s.Records()
	repository, digest := n.digest()
	var found []Record
	for _, r := range all {
		at, _ := splitTag(r.Name)
		switch {
		case digest != "" && r.Digest == digest && at == repository,
			partID().MatchString(text) && strings.HasPrefix(hexOf(r.ID), hexOf(text)):
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 0 && n.ID != "":
		// A root without a name, such as one that a suspended session needs.
		if _, err := s.Info(n.ID); err == nil {
			return Record{Name: n.ID, ID: n.ID}, nil
		}
		fallthrough
	case len(found) == 0:
		return Record{}, errors.Join(missing(text), listErr)
	}
	for _, r := range found[1:] {
		if r.ID != found[0].ID {
			return Record{}, fmt.Errorf("%q matches several images: write more of it", text)
		}
	}
	return found[0], nil
}

// splitTag splits a full name into its repository and its tag or digest.
func splitTag(full string) (repository, tag string) {
	if at := strings.IndexByte(full, '@'); at >= 0 {
		return full[:at], full[at+1:]
	}
	if colon := strings.LastIndexByte(full, ':'); colon > strings.LastIndexByte(full, '/') {
		return full[:colon], full[colon+1:]
	}
	return full, ""
}
