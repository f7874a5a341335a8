package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/sallyport/sallyport/internal/toolbox/search"
)

// maxLine bounds a line of queries.
const maxLine = 4 << 20

// tool is a tool as a server lists it. What is of another type than expected
// is taken for absent: a catalogue with one odd tool still has the others.
type tool struct {
	Name        text `json:"name"`
	Title       text `json:"title"`
	Description text `json:"description"`
	InputSchema any  `json:"inputSchema"`
	// Some public sets use these names.
	Tool       text `json:"tool"`
	Schema     any  `json:"schema"`
	Parameters any  `json:"parameters"`

	Annotations any `json:"annotations"`
}

// text is a string, or empty where the file has something else.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = text(s)
	}
	return nil
}

// readTools reads every file. A name that stands twice with one server is
// kept once, and that is said on warn.
func readTools(paths []string, warn io.Writer) ([]search.Doc, error) {
	var files []string
	for _, p := range paths {
		info, err := os.Stat(p)
		switch {
		case err != nil:
			return nil, err
		case !info.IsDir():
			files = append(files, p)
		default:
			err := filepath.WalkDir(p, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() && strings.EqualFold(filepath.Ext(path), ".json") {
					files = append(files, path)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	var docs []search.Doc
	seen := map[string]bool{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found, err := parseTools(raw, strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(found) == 0 {
			fmt.Fprintf(warn, "search: %s has no tools\n", file)
		}
		for _, d := range found {
			if id := id(&d); seen[id] {
				fmt.Fprintf(warn, "search: %s: %s stands there twice; the first one counts\n", file, id)
			} else {
				seen[id] = true
				docs = append(docs, d)
			}
		}
	}
	if len(docs) == 0 {
		return nil, errors.New("no tools in " + strings.Join(paths, ", "))
	}
	return docs, nil
}

// id is what queries call a tool.
func id(d *search.Doc) string { return d.Server + "/" + d.Name }

// parseTools reads one file of either form, or a bare array of tools.
func parseTools(raw []byte, server string) ([]search.Doc, error) {
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		return toolsOf(list, server, ""), nil
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, err
	}
	// A whole answer of a server, with its envelope.
	if inner, ok := top["result"]; ok && top["jsonrpc"] != nil {
		return parseTools(inner, server)
	}
	if json.Unmarshal(top["tools"], &list) == nil && top["tools"] != nil {
		var about text
		json.Unmarshal(top["instructions"], &about)
		return toolsOf(list, server, string(about)), nil
	}
	names := make([]string, 0, len(top))
	for name := range top {
		names = append(names, name)
	}
	sort.Strings(names)
	var docs []search.Doc
	for _, name := range names {
		var of struct {
			Tools        []json.RawMessage `json:"tools"`
			Instructions text              `json:"instructions"`
			Description  text              `json:"description"`
		}
		list = nil
		if json.Unmarshal(top[name], &list) == nil {
			docs = append(docs, toolsOf(list, name, "")...)
		} else if json.Unmarshal(top[name], &of) == nil {
			docs = append(docs, toolsOf(of.Tools, name, strings.TrimSpace(string(of.Description+" "+of.Instructions)))...)
		}
	}
	return docs, nil
}

func toolsOf(list []json.RawMessage, server, about string) []search.Doc {
	var docs []search.Doc
	for _, raw := range list {
		var t tool
		if json.Unmarshal(raw, &t) != nil {
			continue
		}
		d := search.Doc{Server: server, ServerDescription: about, Name: string(t.Name), Description: string(t.Description)}
		if d.Name == "" {
			d.Name = string(t.Tool)
		}
		if d.Name == "" {
			continue
		}
		if t.Title != "" && !strings.Contains(d.Description, string(t.Title)) {
			d.Description = string(t.Title) + ". " + d.Description
		}
		hints, _ := t.Annotations.(map[string]any)
		d.ReadOnly = hints["readOnlyHint"] == true
		for _, schema := range []any{t.InputSchema, t.Schema, t.Parameters} {
			if d.Arguments = arguments(schema); d.Arguments != nil {
				break
			}
		}
		docs = append(docs, d)
	}
	return docs
}

// arguments are the properties of a schema, by name.
func arguments(schema any) []search.Argument {
	object, _ := schema.(map[string]any)
	properties, _ := object["properties"].(map[string]any)
	var out []search.Argument
	for name, p := range properties {
		about := ""
		if p, ok := p.(map[string]any); ok {
			about, _ = p["description"].(string)
		}
		out = append(out, search.Argument{Name: name, Description: about})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// query is a request and the places of the documents that answer it.
type query struct {
	text     string
	relevant map[int]bool
}

// readQueries reads the queries. A relevant tool that is not among docs is
// named on warn and counts as one that is not found; a file in which no
// relevant tool is known is an error.
func readQueries(path string, docs []search.Doc, warn io.Writer) ([]query, error) {
	places := map[string]int{}
	for i := range docs {
		places[id(&docs[i])] = i
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	var out []query
	known, unknown := 0, 0
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(bytes.TrimPrefix(lines.Bytes(), []byte("\xef\xbb\xbf")))
		if len(line) == 0 {
			continue
		}
		var q struct {
			Query    string   `json:"query"`
			Relevant []string `json:"relevant"`
		}
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if len(q.Relevant) == 0 {
			fmt.Fprintf(warn, "search: %s:%d: no relevant tools; left out\n", path, n)
			continue
		}
		one := query{text: q.Query, relevant: map[int]bool{}}
		for _, r := range q.Relevant {
			if place, ok := places[r]; ok {
				one.relevant[place] = true
				known++
				continue
			}
			// A place that no document has: never found.
			unknown++
			one.relevant[-unknown] = true
			if unknown <= 10 {
				fmt.Fprintf(warn, "search: %s:%d: no tool %q\n", path, n, r)
			}
		}
		out = append(out, one)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case len(out) == 0:
		return nil, fmt.Errorf("%s: no queries", path)
	case known == 0:
		return nil, fmt.Errorf("%s: none of its %d relevant tools is among the %d tools: relevant tools are written server/tool", path, unknown, len(docs))
	case unknown > 0:
		fmt.Fprintf(warn, "search: %d relevant tools are not among the tools; they count as not found\n", unknown)
	}
	return out, nil
}
