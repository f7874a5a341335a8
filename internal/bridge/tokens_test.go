package bridge

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
)

// questions are what somebody might ask the real servers for.
var questions = strings.Split(strings.TrimSpace(`
create an issue
list open pull requests
read a file
write text to a file
search files by name
take a screenshot of the page
click a button
fill in a form
run a database query
insert documents into a collection
draw a bar chart
make a pie chart
get pod logs
list kubernetes deployments
scale a deployment
commit changes
show the git log
create a branch
merge a merge request
comment on an issue
send a message to a channel
list users
look up library documentation
create a page in notion
query a data source
think step by step
remember facts about a person
navigate to a url
wait for text to appear
list network requests
record a performance trace
upload a file
drop an index
count documents
compare two commits
fork a repository
search code
get the content of a directory
edit a file
delete a branch
list pipelines
retry a failed job
close the browser
press a key
drag and drop
evaluate javascript
install a helm chart
port forward
create a wiki page
list milestones
add a reaction
get channel history
plot a network graph
show a word cloud
resize the window
stash changes
push to remote
aggregate data
explain a query plan
export data
`), "\n")

// toolSet is one collection of tools with requests for them.
type toolSet struct {
	name    string
	tools   map[string][]tool.Tool // by server
	queries []string
}

// toolSets returns the sets that search is measured with and, where they are
// present, the tools of real servers.
func toolSets(t *testing.T) []toolSet {
	t.Helper()
	var sets []toolSet
	for name, every := range map[string]int{"golden": 1, "metatool": 20} {
		set := toolSet{name: name}
		raw, err := os.ReadFile("../../bench/search/testdata/" + name + "/tools.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &set.tools); err != nil {
			t.Fatal(err)
		}
		raw, err = os.ReadFile("../../bench/search/testdata/" + name + "/queries.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(raw)) {
			var q struct{ Query string }
			if err := json.Unmarshal([]byte(line), &q); err != nil {
				t.Fatal(err)
			}
			if n++; n%every == 0 {
				set.queries = append(set.queries, q.Query)
			}
		}
		sets = append(sets, set)
	}
	files, err := filepath.Glob("../../../shared/data/mcp-tools/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > 0 {
		real := toolSet{name: "real servers", tools: map[string][]tool.Tool{}, queries: questions}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var list struct{ Tools []tool.Tool }
			if err := json.Unmarshal(raw, &list); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			real.tools[strings.TrimSuffix(filepath.Base(file), ".json")] = list.Tools
		}
		sets = append(sets, real)
	}
	return sets
}

// TestAnswersAreSmall counts what a model reads of an answer with five hits, as
// the sandbox prints it, of servers that are not loaded, which takes most.
func TestAnswersAreSmall(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range toolSets(t) {
		t.Run(set.name, func(t *testing.T) {
			answers := answersOf(t, set)
			if len(answers) < len(set.queries)/2 {
				t.Fatalf("only %d of %d queries have five hits", len(answers), len(set.queries))
			}
			in, err := json.Marshal(answers)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(python, "-c", "import json, sys\nfrom sallyport_guest.docs import documents\nprint(json.dumps([repr(documents(a)) for a in json.load(sys.stdin)]))")
			cmd.Dir = "../language/python"
			cmd.Stdin = strings.NewReader(string(in))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var printed []string
			if err := json.Unmarshal(out, &printed); err != nil {
				t.Fatal(err)
			}
			var counts []int
			for _, text := range printed {
				count, err := codec.Count(text)
				if err != nil {
					t.Fatal(err)
				}
				counts = append(counts, count)
				if n := strings.Count(text, "# loaded by"); n != 1 {
					t.Errorf("an answer says %d times how to load servers, want once:\n%s", n, text)
				}
			}
			slices.Sort(counts)
			median := counts[len(counts)/2]
			t.Logf("median %d tokens, least %d, most %d, of %d answers\n%s", median, counts[0], counts[len(counts)-1], len(counts), printed[0])
			if median > 250 {
				t.Errorf("the median answer has %d tokens, more than 250", median)
			}
		})
	}
}

// answersOf returns the answers of a search over a set of tools that have five
// hits.
func answersOf(t *testing.T, set toolSet) []json.RawMessage {
	t.Helper()
	s := &stub{servers: map[string]*stubServer{}}
	for name, tools := range set.tools {
		for i := range tools {
			tools[i].Alias = tool.Alias(tools[i].Name)
		}
		s.definitions = append(s.definitions, upstream.Definition{Name: name, Alias: tool.ServerAlias(name)})
		s.servers[name] = &stubServer{tools: tools}
	}
	b, err := New(Config{Source: s, Gate: authz.New(authz.Config{Policy: authz.Default()})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	for _, d := range s.definitions {
		if _, err := b.catalog.Want(t.Context(), d.Name); err != nil {
			t.Fatal(err)
		}
	}
	x := b.Begin(self, nil)
	var answers []json.RawMessage
	for _, q := range set.queries {
		docs := docsOf(t, x, "search_tool_docs", fmt.Sprintf(`{"query":%q,"limit":5}`, q))
		encoded, err := json.Marshal(docs)
		if err != nil {
			t.Fatal(err)
		}
		if len(docs) == 5 {
			answers = append(answers, encoded)
		}
	}
	return answers
}
