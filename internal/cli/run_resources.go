package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"path"
	"path/filepath"

	"github.com/sallyport/sallyport/internal/artifact"
	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/mcpserver"
	"github.com/sallyport/sallyport/internal/store"
)

// runFiles provides the files that a client's runs left, as resources.
type runFiles struct {
	store *runs.Store
	owns  func(run, client string) bool // see broker.Client.Owns
}

// List implements mcpserver.Resources.
func (f runFiles) List(context.Context) ([]mcpserver.Resource, error) {
	list, err := f.store.List()
	if list == nil && err != nil && !errors.Is(err, store.ErrNoPlace) {
		return nil, err
	}
	var out []mcpserver.Resource
	for _, r := range list {
		if !r.Fetched || !f.owns(r.ID, r.Client) {
			continue
		}
		for _, file := range r.Files {
			out = append(out, mcpserver.Resource{
				URI: runs.URI(r.ID, file.Path), Name: file.Path, Size: file.Size, MIMEType: mime.TypeByExtension(path.Ext(file.Path)),
				Description: "left by run " + r.ID + " on " + r.Service,
			})
		}
	}
	return out, nil
}

// Open implements mcpserver.Resources.
func (f runFiles) Open(_ context.Context, uri string) (*mcpserver.Content, error) {
	id, name, ok := runs.ParseURI(uri)
	if !ok {
		return nil, mcpserver.ErrNoResource
	}
	record, err := f.store.Get(id)
	if errors.Is(err, runs.ErrUnknown) || err == nil && !f.owns(id, record.Client) {
		return nil, mcpserver.ErrNoResource
	}
	if err != nil {
		return nil, err
	}
	root, err := f.store.Files(id)
	if errors.Is(err, runs.ErrUnknown) || errors.Is(err, fs.ErrNotExist) {
		return nil, mcpserver.ErrNoResource
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, mcpserver.ErrNoResource
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(mcpserver.ErrNoResource, file.Close())
	}
	return &mcpserver.Content{MIMEType: mime.TypeByExtension(path.Ext(name)), Size: info.Size(), ReadSeekCloser: file}, nil
}

// artifacts provides the files that code left, as resources.
type artifacts struct {
	store *artifact.Store
	owns  func(record, client string) bool // see broker.Client.Owns
}

// maxArtifacts bounds how many files the list of resources has.
const maxArtifacts = 100

// reads reports whether the client may read a record: named sessions belong to the user,
// and others to one client.
func (a artifacts) reads(r *artifact.Record) bool {
	return r.Owner == "" && (!r.Own || a.owns(r.ID, r.Client))
}

// List implements mcpserver.Resources.
func (a artifacts) List(context.Context) ([]mcpserver.Resource, error) {
	list, err := a.store.List()
	if list == nil && err != nil && !errors.Is(err, store.ErrNoPlace) {
		return nil, err
	}
	var out []mcpserver.Resource
	for _, r := range list {
		if !a.reads(r) {
			continue
		}
		for _, f := range r.Files {
			if len(out) == maxArtifacts {
				return out, nil
			}
			out = append(out, mcpserver.Resource{
				URI: artifact.URI(r.ID, f.Path), Name: f.Path, Title: f.About, Size: f.Size, MIMEType: f.Type,
				Description: fmt.Sprintf("left by execution %d of session %s", r.Execution, r.Session),
			})
		}
	}
	return out, nil
}

// Open implements mcpserver.Resources.
func (a artifacts) Open(_ context.Context, uri string) (*mcpserver.Content, error) {
	id, name, ok := artifact.ParseURI(uri)
	if !ok {
		return nil, mcpserver.ErrNoResource
	}
	r, err := a.store.Get(id)
	if errors.Is(err, artifact.ErrUnknown) || err == nil && !a.reads(r) {
		return nil, mcpserver.ErrNoResource
	}
	if err != nil {
		return nil, err
	}
	f, err := r.File(name)
	if err != nil {
		return nil, mcpserver.ErrNoResource
	}
	content, err := a.store.Open(f)
	if err != nil {
		return nil, err
	}
	return &mcpserver.Content{MIMEType: f.Type, Size: f.Size, ReadSeekCloser: content}, nil
}
