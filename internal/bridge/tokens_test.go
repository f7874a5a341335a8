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

	"sallyport/internal/upstream"
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

// TestAnswersAreSmall: what a model reads of a search over the real tools, as
// Python prints it, of servers that are not loaded, which takes most.
func TestAnswersAreSmall(t *testing.T) {
	files, err := filepath.Glob("../../../shared/data/mcp-tools/*.json")
	if err != nil || len(files) == 0 {
		t.Skip("the real tools are not here")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	s, n := &stub{servers: map[string]*stubServer{}}, 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Tools []upstream.Tool }
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var own []string
		for _, tool := range list.Tools {
			own = append(own, tool.Name)
		}
		for i, alias := range upstream.ToolAliases(own) {
			list.Tools[i].Alias = alias
		}
		n += len(own)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		s.definitions = append(s.definitions, upstream.Definition{Name: name, Alias: upstream.ServerAlias(name)})
		s.servers[name] = &stubServer{tools: list.Tools}
	}
	if n != 458 {
		t.Errorf("there are %d real tools", n)
	}
	b, err := New(Config{Source: s, Policy: newBridge(t, newStub(), 0).config.Policy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	b.config.Policy.Servers = []string{"*"}
	b.view.Store(nil)
	for _, d := range s.definitions {
		if _, err := b.catalog.Want(t.Context(), d.Name); err != nil {
			t.Fatal(err)
		}
	}
	x := b.Begin(nil)
	var answers []json.RawMessage
	for _, q := range questions {
		docs := docsOf(t, x, "search_tool_docs", fmt.Sprintf(`{"query":%q,"limit":5}`, q))
		encoded, err := json.Marshal(docs)
		if err != nil {
			t.Fatal(err)
		}
		if len(docs) == 5 {
			answers = append(answers, encoded)
		} else {
			t.Logf("%d hits for %s", len(docs), q)
		}
	}
	if len(answers) < len(questions)/2 {
		t.Fatalf("only %d of %d questions have five hits", len(answers), len(questions))
	}
	in, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", "import json, sys\nprint(json.dumps([repr(a) for a in json.load(sys.stdin)]))")
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var printed []string
	if err := json.Unmarshal(out, &printed); err != nil {
		t.Fatal(err)
	}
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	var counts []int
	for _, text := range printed {
		count, err := codec.Count(text)
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, count)
	}
	slices.Sort(counts)
	median := counts[len(counts)/2]
	t.Logf("median %d tokens, least %d, most %d, of %d answers", median, counts[0], counts[len(counts)-1], len(counts))
	if median > 400 {
		t.Errorf("the median answer has %d tokens, more than 400\n%s", median, printed[0])
	}
}
