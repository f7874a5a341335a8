// Command convert turns public sets for tool search into the form that
// bench/search reads.
//
//	go run ./bench/search/convert --from DIR --to DIR [--real DIR]
//
// The folder --from has the files of mcpproxy-go (mcpproxy_corpus_v2.json and
// mcpproxy_golden.json; labels with a relevance above 0 count) and of MetaTool
// (metatool_des.json and metatool_queries.csv). --real is a folder of
// tools/list answers that are added to the golden set as distractors, without
// the servers whose tools are in the set itself or that only demonstrate.
// Written are golden/tools.json and golden/queries.jsonl, real/*.json, and
// metatool/tools.json and metatool/queries.jsonl. Then:
//
//	go run ./bench/search --tools DIR/golden/tools.json --queries DIR/golden/queries.jsonl
//	go run ./bench/search --tools DIR/golden/tools.json --tools DIR/real --queries DIR/golden/queries.jsonl
//	go run ./bench/search --tools DIR/metatool/tools.json --queries DIR/metatool/queries.jsonl
package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// leftOut are the real servers that are no distractors of the golden set.
var leftOut = []string{"everything", "filesystem", "git-cyanheads", "memory", "playwright-caps", "sequential-thinking"}

func main() {
	from := flag.String("from", "", "folder of the sets")
	to := flag.String("to", "", "folder to write")
	real := flag.String("real", "", "folder of tools/list answers")
	flag.Parse()
	if *from == "" || *to == "" {
		fmt.Fprintln(os.Stderr, "convert: --from and --to are needed")
		os.Exit(1)
	}
	if err := convert(*from, *to, *real); err != nil {
		fmt.Fprintln(os.Stderr, "convert:", err)
		os.Exit(1)
	}
}

func convert(from, to, real string) error {
	done := 0
	for _, set := range []func(from, to string) error{golden, metatool} {
		err := set(from, to)
		if err == nil {
			done++
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		} else {
			fmt.Fprintln(os.Stderr, "convert:", err)
		}
	}
	if done == 0 {
		return fmt.Errorf("%s has none of the sets", from)
	}
	if real == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(real, "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Base(file)
		if slices.Contains(leftOut, strings.TrimSuffix(name, ".json")) {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(to, "real", name), raw); err != nil {
			return err
		}
	}
	return nil
}

// query is a line of the queries' file.
type query struct {
	Query    string   `json:"query"`
	Relevant []string `json:"relevant"`
}

func golden(from, to string) error {
	var corpus struct {
		Tools []struct {
			Server      string          `json:"server"`
			Tool        string          `json:"tool"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"schema"`
		} `json:"tools"`
	}
	if err := read(filepath.Join(from, "mcpproxy_corpus_v2.json"), &corpus); err != nil {
		return err
	}
	servers := map[string][]any{}
	for _, t := range corpus.Tools {
		servers[t.Server] = append(servers[t.Server], map[string]any{
			"name": t.Tool, "description": t.Description, "inputSchema": t.Schema,
		})
	}
	var labels struct {
		Queries []struct {
			Query  string `json:"query"`
			Labels []struct {
				Tool      string  `json:"tool_id"`
				Relevance float64 `json:"relevance"`
			} `json:"labels"`
		} `json:"queries"`
	}
	if err := read(filepath.Join(from, "mcpproxy_golden.json"), &labels); err != nil {
		return err
	}
	var queries []query
	for _, q := range labels.Queries {
		one := query{Query: q.Query}
		for _, l := range q.Labels {
			if l.Relevance > 0 {
				one.Relevant = append(one.Relevant, strings.Replace(l.Tool, ":", "/", 1))
			}
		}
		queries = append(queries, one)
	}
	return writeSet(filepath.Join(to, "golden"), servers, queries)
}

func metatool(from, to string) error {
	var about map[string]string
	if err := read(filepath.Join(from, "metatool_des.json"), &about); err != nil {
		return err
	}
	names := make([]string, 0, len(about))
	for name := range about {
		names = append(names, name)
	}
	slices.Sort(names)
	var tools []any
	for _, name := range names {
		tools = append(tools, map[string]any{"name": name, "description": about[name]})
	}
	f, err := os.Open(filepath.Join(from, "metatool_queries.csv"))
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return err
	}
	var queries []query
	for i, row := range rows {
		if len(row) < 2 {
			return fmt.Errorf("%s: row %d has no tool", f.Name(), i+1)
		}
		if i > 0 {
			queries = append(queries, query{row[0], []string{"metatool/" + row[1]}})
		}
	}
	return writeSet(filepath.Join(to, "metatool"), map[string][]any{"metatool": tools}, queries)
}

func read(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func writeSet(folder string, servers map[string][]any, queries []query) error {
	raw, err := json.MarshalIndent(servers, "", " ")
	if err != nil {
		return err
	}
	if err := write(filepath.Join(folder, "tools.json"), raw); err != nil {
		return err
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	enc.SetEscapeHTML(false)
	for _, q := range queries {
		if err := enc.Encode(q); err != nil {
			return err
		}
	}
	return write(filepath.Join(folder, "queries.jsonl"), lines.Bytes())
}

func write(path string, raw []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o644)
}
