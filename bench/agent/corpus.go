package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// The corpus. A file has tasks like this one:
//
//	=== fs-todo: How many TODO lines are in the notes?
//	servers: filesystem
//	packages: pandas
//	answer: \b3\b
//	pictures: 1
//	file: out.txt \bdone\b
//	direct: filesystem.read_text_file {"path": "{work}/notes/monday.txt"}
//	--- setup
//	code that runs first, in every variant
//	--- plain
//	code
//	+++
//	code of the next call
//	--- timeout-as-text {"timeout": "60"}
//	code, with more arguments of run_python
//	--- other-name {"@code": "source"}
//	code, sent as the argument source
//
// answer is a regular expression for the last answer, pictures is how many it
// must have, file names a file of the work folder and what must be in it. direct
// is one tool call that a model would make instead of code. {work} stands for
// the work folder, a copy of corpus/work with a git repository in repo.
//
//go:embed all:corpus
var corpus embed.FS

const variantsOfTask = 3

type task struct {
	group, name, question string
	servers, packages     []string
	answer                *regexp.Regexp
	pictures              int
	file                  string
	fileHas               *regexp.Regexp
	direct                []directCall
	setup                 string
	variants              []variant
}

type directCall struct{ server, tool, arguments string }

type variant struct {
	name      string
	arguments map[string]json.RawMessage
	calls     []string // code
}

// readCorpus returns all tasks, in the order of the files and in them.
func readCorpus() ([]*task, error) {
	files, err := fs.Glob(corpus, "corpus/*.txt")
	if err != nil {
		return nil, err
	}
	var all []*task
	for _, name := range files {
		data, err := corpus.ReadFile(name)
		if err != nil {
			return nil, err
		}
		tasks, err := parseTasks(strings.TrimSuffix(path.Base(name), ".txt"), string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, tasks...)
	}
	return all, nil
}

// tasks returns those of the file that the options name, or the corpus.
func (o options) tasks() ([]*task, error) {
	if o.task == "" {
		return readCorpus()
	}
	data, err := os.ReadFile(o.task)
	if err != nil {
		return nil, err
	}
	tasks, err := parseTasks(strings.TrimSuffix(filepath.Base(o.task), ".txt"), string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.task, err)
	}
	return tasks, nil
}

func parseTasks(group, content string) ([]*task, error) {
	var tasks []*task
	var t *task
	var code *string // of the block under way
	for number, line := range strings.SplitAfter(content, "\n") {
		bare := strings.TrimRight(line, "\n")
		var err error
		switch {
		case strings.HasPrefix(line, "=== "):
			name, question, _ := strings.Cut(bare[4:], ": ")
			t, code = &task{group: group, name: name, question: question}, nil
			tasks = append(tasks, t)
		case t == nil:
			if strings.TrimSpace(line) != "" {
				err = fmt.Errorf("%q is before the first task", bare)
			}
		case bare == "--- setup":
			code = &t.setup
		case strings.HasPrefix(line, "--- "):
			name, arguments, _ := strings.Cut(bare[4:], " ")
			v := variant{name: name, calls: []string{""}}
			if arguments != "" {
				err = json.Unmarshal([]byte(arguments), &v.arguments)
			}
			t.variants = append(t.variants, v)
			code = &t.variants[len(t.variants)-1].calls[0]
		case bare == "+++" && len(t.variants) > 0:
			v := &t.variants[len(t.variants)-1]
			v.calls = append(v.calls, "")
			code = &v.calls[len(v.calls)-1]
		case code != nil:
			*code += line
		case bare != "":
			err = t.header(bare)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
	}
	return tasks, nil
}

// header reads a line between the name of a task and its first variant.
func (t *task) header(line string) (err error) {
	key, value, _ := strings.Cut(line, ": ")
	switch key {
	case "servers":
		t.servers = strings.Fields(value)
	case "packages":
		t.packages = strings.Fields(value)
	case "answer":
		t.answer, err = regexp.Compile(value)
	case "pictures":
		_, err = fmt.Sscan(value, &t.pictures)
	case "file":
		var pattern string
		t.file, pattern, _ = strings.Cut(value, " ")
		t.fileHas, err = regexp.Compile(pattern)
	case "direct":
		called, arguments, _ := strings.Cut(value, " ")
		server, tool, ok := strings.Cut(called, ".")
		if !ok || !json.Valid([]byte(arguments)) {
			return fmt.Errorf("direct: %q is not SERVER.TOOL {ARGUMENTS}", value)
		}
		t.direct = append(t.direct, directCall{server, tool, arguments})
	default:
		return fmt.Errorf("there is no key %q", key)
	}
	return err
}
