package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/mcpserver"
	"github.com/sallyport/sallyport/internal/store"
)

// runFiles provides the files that a client's runs left, as resources.
type runFiles struct {
	store *runs.Store
	owns  func(run, client string) bool // see broker.Client.Owns
}

// maxRunResource bounds a file that a client reads as a resource.
const maxRunResource = 16 << 20

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

// Read implements mcpserver.Resources.
func (f runFiles) Read(_ context.Context, uri string) (*mcpserver.Content, error) {
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
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxRunResource+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxRunResource {
		return nil, fmt.Errorf("the file is larger than %d MiB: `sallyport runs fetch %s` copies it", maxRunResource>>20, id)
	}
	kind := mime.TypeByExtension(path.Ext(name))
	if utf8.Valid(data) && (kind == "" || strings.HasPrefix(kind, "text/") || strings.HasPrefix(kind, "application/json")) {
		if kind == "" {
			kind = "text/plain"
		}
		return &mcpserver.Content{MIMEType: kind, Text: string(data)}, nil
	}
	if kind == "" {
		kind = "application/octet-stream"
	}
	return &mcpserver.Content{MIMEType: kind, Blob: data}, nil
}
