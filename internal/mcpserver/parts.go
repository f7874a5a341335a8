package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/artifact"
)

// maxPart is how much of a resource is read at once, in bytes.
const maxPart = 4 << 20

// partKey is the key of the metadata of a part: its place, the size of the whole, and
// the address of the next part, if there is one.
const partKey = "io.github.sallyport/part"

// readResource reads a resource, or a part of it, from the first source that has it.
func readResource(ctx context.Context, sources []Resources, uri string) (*mcp.ReadResourceResult, error) {
	plain, offset, length, err := splitPart(uri)
	if err != nil {
		return nil, &sdkrpc.Error{Code: sdkrpc.CodeInvalidParams, Message: fmt.Sprintf("resource %s: %v", uri, err)}
	}
	for _, source := range sources {
		content, err := source.Open(ctx, plain)
		if errors.Is(err, ErrNoResource) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("resource %s: %w", plain, err)
		}
		contents, err := content.part(plain, offset, length)
		if err := errors.Join(err, content.Close()); err != nil {
			return nil, fmt.Errorf("resource %s: %w", plain, err)
		}
		contents.URI = uri
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}, Cacheable: mcp.Cacheable{CacheScope: "private"}}, nil
	}
	return nil, mcp.ResourceNotFoundError(uri)
}

// splitPart takes an address with a part apart: URI?offset=N&length=M, of which each may
// be missing.
func splitPart(uri string) (plain string, offset, length int64, err error) {
	plain, query, _ := strings.Cut(uri, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", 0, 0, errors.New("what follows the question mark is not a query")
	}
	length = maxPart
	for key, all := range values {
		n, err := strconv.ParseInt(all[0], 10, 64)
		switch {
		case len(all) != 1 || err != nil || n < 0:
			return "", 0, 0, fmt.Errorf("%s must be a number of bytes, once", key)
		case key == "offset":
			offset = n
		case key == "length" && n > 0:
			length = min(n, maxPart)
		default:
			return "", 0, 0, fmt.Errorf("%s=%d: a part has an offset and a length", key, n)
		}
	}
	return plain, offset, length, nil
}

// part reads a part. Text ends between two characters.
func (c *Content) part(uri string, offset, length int64) (*mcp.ResourceContents, error) {
	if offset > c.Size {
		return nil, &sdkrpc.Error{Code: sdkrpc.CodeInvalidParams, Message: fmt.Sprintf("resource %s has %d bytes, and no part at %d", uri, c.Size, offset)}
	}
	if _, err := c.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	data := make([]byte, min(length, c.Size-offset))
	if _, err := io.ReadFull(c, data); err != nil {
		return nil, err
	}
	out := &mcp.ResourceContents{MIMEType: c.MIMEType}
	text, isText := artifact.Characters(data, offset+int64(len(data)) == c.Size)
	if isText && textual(c.MIMEType) {
		out.Text, data = string(text), text
		if out.MIMEType == "" {
			out.MIMEType = "text/plain"
		}
	} else {
		out.Blob = data
		if out.MIMEType == "" {
			out.MIMEType = "application/octet-stream"
		}
	}
	if end := offset + int64(len(data)); offset > 0 || end < c.Size {
		part := map[string]any{"offset": offset, "length": len(data), "size": c.Size}
		if end < c.Size {
			part["next"] = fmt.Sprintf("%s?offset=%d", uri, end)
			if length < maxPart {
				part["next"] = fmt.Sprintf("%s?offset=%d&length=%d", uri, end, length)
			}
		}
		out.Meta = mcp.Meta{partKey: part}
	}
	return out, nil
}

// textual says whether resources of a media type are read as text, if they are UTF-8.
func textual(mimeType string) bool {
	kind, _, _ := strings.Cut(mimeType, ";")
	return kind == "" || kind == "application/javascript" || artifact.IsText(kind)
}
