package artifact

import (
	"net/http"
	"path"
	"strings"
	"unicode/utf8"
)

// kinds are the media types of names whose content does not tell the type. They do not
// depend on the machine, as those of package mime do.
var kinds = map[string]string{
	".css": "text/css", ".csv": "text/csv", ".geojson": "application/geo+json", ".htm": "text/html", ".html": "text/html",
	".ipynb": "application/x-ipynb+json", ".js": "text/javascript", ".json": "application/json", ".jsonl": "application/jsonl",
	".md": "text/markdown", ".ndjson": "application/x-ndjson", ".py": "text/x-python", ".svg": "image/svg+xml", ".tex": "text/x-tex",
	".toml": "application/toml", ".tsv": "text/tab-separated-values", ".txt": "text/plain", ".xml": "text/xml", ".yaml": "application/yaml", ".yml": "application/yaml",
}

// binary are those of names whose content is not text.
var binary = map[string]string{
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".npz":  "application/zip", ".parquet": "application/vnd.apache.parquet",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".tif":  "image/tiff", ".tiff": "image/tiff",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}

// unknown is the type of what may be anything.
const unknown = "application/octet-stream"

// TypeOf returns the media type of a file with that name and beginning. What the
// content shows counts: text named .png is not a picture, and a program is not text.
func TypeOf(name string, head []byte) string {
	found, _, _ := strings.Cut(http.DetectContentType(head), ";")
	ext := strings.ToLower(path.Ext(name))
	_, valid := Characters(head, len(head) < sniffed)
	switch {
	case IsText(found) && valid:
		if kind := kinds[ext]; kind != "" {
			return kind
		}
		return found
	case IsText(found):
		found = unknown
	}
	if found == unknown || found == "application/zip" {
		if kind := binary[ext]; kind != "" {
			return kind
		}
	}
	return found
}

// IsText reports whether files of a type are read as text.
func IsText(kind string) bool {
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "+xml") ||
		kind == "application/toml" || kind == "application/yaml" || kind == "application/jsonl"
}

// Characters returns data without a character of which the end is missing, and whether
// it is UTF-8. With end, nothing follows the data, and no character may be cut off.
func Characters(data []byte, end bool) ([]byte, bool) {
	for n := range utf8.UTFMax {
		if n >= len(data) && n > 0 {
			return nil, false
		}
		if whole := data[:len(data)-n]; utf8.Valid(whole) {
			return whole, true
		}
		if end {
			break
		}
	}
	return nil, false
}
