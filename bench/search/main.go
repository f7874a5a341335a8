// Command search says how well and how fast tools are found.
//
//	go run ./bench/search --tools FILE_OR_DIR --queries FILE.jsonl
//	go run ./bench/search --tools a.json --tools real/ --queries q.jsonl --method lexical
//
// Tools are JSON files (of a folder: all that end in .json), each a tools/list
// answer, {"tools": [...]}, whose server is the file's name, or servers by
// name, {"server": [tools...], ...}. A query is a line of JSON:
// {"query": "...", "relevant": ["server/tool", ...]}. bench/search/convert
// makes such files of public sets.
//
// It prints one line: hit@1 (the first hit is relevant), R@1, R@5 and R@10 (the
// share of the relevant tools among so many hits, the mean over the queries),
// MRR (the mean of one over the first relevant hit's place), the standard
// error of R@5, and queries per second on one core. With --speed N it prints
// instead what a search over N tools takes, time and memory.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/toolbox/search"
)

// paths is a flag that may be given more than once.
type paths []string

func (p *paths) String() string { return strings.Join(*p, " ") }

func (p *paths) Set(s string) error {
	*p = append(*p, s)
	return nil
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "search:", err)
		}
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	var tools paths
	fs := flag.NewFlagSet("search", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Var(&tools, "tools", "a JSON file of tools, or a folder of such; may be repeated")
	queries := fs.String("queries", "", "a file of queries, one JSON object a line")
	method := fs.String("method", "both", "one of "+strings.Join(methods(), ", "))
	misses := fs.Bool("misses", false, "name on standard error what was not among the first five")
	over := fs.Int("speed", 0, "time the queries over so many tools, copies included, instead of judging the hits")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if len(tools) == 0 || *queries == "" {
		return fmt.Errorf("--tools and --queries are needed")
	}
	if !slices.Contains(methods(), *method) {
		return fmt.Errorf("unknown method %q: one of %s", *method, strings.Join(methods(), ", "))
	}
	docs, err := readTools(tools, stderr)
	if err != nil {
		return err
	}
	asked, err := readQueries(*queries, docs, stderr)
	if err != nil {
		return err
	}
	if *over > 0 {
		_, err := fmt.Fprintln(stdout, speed(docs, asked, *method, *over))
		return err
	}
	find := finder(*method, docs)
	var report io.Writer
	if *misses {
		report = stderr
	}
	_, err = fmt.Fprintln(stdout, measure(docs, asked, find, report))
	return err
}

// A find gives the places of the best documents for a query, best first.
type find func(query string, limit int) []int

// finder is the way of searching that has this name.
func finder(method string, docs []search.Doc) find {
	if own, ok := search.MethodNamed(method); ok {
		index := search.New(docs)
		return func(query string, limit int) []int {
			hits := index.Search(query, search.Options{Limit: limit, Method: own})
			out := make([]int, len(hits))
			for i, h := range hits {
				out[i] = h.Doc
			}
			return out
		}
	}
	if method == "bm25" {
		return bm25(docs)
	}
	return substring(docs)
}

func methods() []string {
	return []string{search.Lexical.String(), search.Vectors.String(), search.Both.String(), "bm25", "substring"}
}
