package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/store"
)

func TestEntries(t *testing.T) {
	dir := t.TempDir()
	denied := decided(2, "{}")
	denied.Allowed, denied.Effect, denied.Item = false, "deny", "delete"
	other := decided(3, "{}")
	other.Server, other.Session, other.Time = "github", "t", when.Add(time.Hour)
	write(t, config(dir), &journal.ExecutionBegan{Origin: origin(), Servers: []string{"github"}}, decided(1, "{}"), denied, other,
		&journal.Finished{Call: 1}, &journal.Finished{Call: 3, Failure: "timeout"}, &journal.ExecutionEnded{Origin: origin(), Status: "success"})
	for _, test := range []struct {
		filter Filter
		limit  int
		want   string
	}{
		{Filter{}, 0, "1 ok, 2 ok, 3 denied, 4 failed, 7 ok"},
		{Filter{}, 2, "4 failed, 7 ok"},
		{Filter{Result: Denied}, 0, "3 denied"},
		{Filter{Result: Failed}, 1, "4 failed"},
		{Filter{Server: "github"}, 0, "1 ok, 4 failed"},
		{Filter{Tool: "delete"}, 0, "3 denied"},
		{Filter{Session: "t"}, 0, "4 failed"},
		{Filter{Client: "cursor"}, 0, ""},
		{Filter{Since: when.Add(time.Minute)}, 0, "4 failed"},
		{Filter{ID: "x-1"}, 1, "7 ok"},
		{Filter{ID: "3"}, 0, "3 denied"},
	} {
		list, err := Entries(store.At(dir), test.filter, test.limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range list {
			got = append(got, fmt.Sprint(e.Seq, " ", e.Result()))
		}
		if got := strings.Join(got, ", "); got != test.want {
			t.Errorf("%+v: got %s, want %s", test.filter, got, test.want)
		}
	}
}

func asked(revision int, how string) *journal.Asked {
	return &journal.Asked{
		Origin: origin(), Question: "k3vq", Revision: revision, Action: "call_tool", Server: "fs", Item: "write_file", Rule: "policy.tools[1]", Calls: revision,
		Shown: "shown /etc/x", Audit: how,
	}
}

// TestQuestions: a question waits until its answer, or its end, is recorded.
func TestQuestions(t *testing.T) {
	dir := t.TempDir()
	question := func(id, execution string, revision int) *journal.Asked {
		q := asked(revision, "")
		q.Question, q.Execution = id, execution
		return q
	}
	answer := func(id, execution string, revision, calls int, allowed bool, by, reason string) *journal.Answered {
		a := &journal.Answered{Origin: origin(), Question: id, Revision: revision, Server: "fs", Item: "write_file", Allowed: allowed, By: by, Calls: calls, Reason: reason, Took: 2 * time.Second}
		if a.Execution = execution; by != "" {
			a.Scope = "this call"
		}
		return a
	}
	install := question("eeee", "x-5", 1)
	install.Action, install.Server, install.Item = "install_packages", "", "roman"
	killed := answer("dddd", "x-4", 0, 2, false, "", "killed")
	killed.Killed, killed.Since = 42, when
	write(t, config(dir),
		question("aaaa", "x-1", 1), question("aaaa", "x-1", 2), answer("aaaa", "x-1", 2, 1, true, "terminal", ""),
		question("bbbb", "x-1", 1), answer("bbbb", "x-2", 1, 1, false, "client", ""), // of another execution
		question("cccc", "x-3", 3), answer("cccc", "x-3", 0, 3, false, "", "no answer came"), killed, install,
	)
	for _, test := range []struct {
		filter Filter
		want   []string
	}{
		{Filter{}, []string{
			"1 ok asked aaaa.1 about 1 × fs.write_file", "2 ok asked aaaa.2 about 2 × fs.write_file", "3 ok yes to aaaa.2, 1 × fs.write_file: this call, by terminal after 2s",
			"4 pending asked bbbb.1 about 1 × fs.write_file", "5 denied no to bbbb.1, 1 × fs.write_file: this call, by client after 2s",
			"6 ok asked cccc.3 about 3 × fs.write_file", "7 denied no answer to cccc about 3 × fs.write_file: no answer came (after 2s)",
			"8 denied no answer to dddd about 2 × fs.write_file: killed (since " + when.Local().Format(time.DateTime) + ")",
			"9 pending asked eeee.1 about installing roman",
		}},
		{Filter{Result: Pending}, []string{"4 pending asked bbbb.1 about 1 × fs.write_file", "9 pending asked eeee.1 about installing roman"}},
		{Filter{ID: "aaaa.2"}, []string{"2 ok asked aaaa.2 about 2 × fs.write_file", "3 ok yes to aaaa.2, 1 × fs.write_file: this call, by terminal after 2s"}},
		{Filter{ID: "bbbb"}, []string{"4 pending asked bbbb.1 about 1 × fs.write_file", "5 denied no to bbbb.1, 1 × fs.write_file: this call, by client after 2s"}},
	} {
		list, err := Entries(store.At(dir), test.filter, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range list {
			text := fmt.Sprint(e.Seq, " ", e.Result(), " ", e.Title())
			if e.Type == Answer {
				text += ": " + e.Answered()
			}
			got = append(got, text)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v: got\n%s\nwant\n%s", test.filter, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// A reader that follows gets each record once.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	c := config(dir)
	c.RotateSize = 500
	r := NewReader(c.Dir, time.Time{})
	var got []uint64
	for range 6 {
		write(t, c, decided(1, "{}"))
		if err := r.Each(func(_ []byte, r *Record) { got = append(got, r.Seq) }); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(got) != "[1 2 3 4 5 6]" {
		t.Errorf("got %v", got)
	}
}

func TestOCSF(t *testing.T) {
	dir := t.TempDir()
	denied := decided(2, `{"a":1}`)
	denied.Allowed, denied.Rule, denied.Reason = false, "policy.tools[1]", "no"
	write(t, config(dir), denied, &journal.ServerChanged{Server: "fs", To: journal.ServerStarted}, asked(5, ""),
		&journal.Answered{Origin: origin(), Question: "k3vq", Action: "call_tool", Server: "fs", Item: "write_file", Reason: "no answer came", Calls: 5, Took: time.Second})
	var got []map[string]any
	err := NewReader(store.At(dir), time.Time{}).Each(func(line []byte, r *Record) {
		raw, err := OCSF(line, r, "1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		var e map[string]any
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		delete(e, "unmapped")
		got = append(got, e)
	})
	if err != nil {
		t.Fatal(err)
	}
	product := `"product":{"name":"Sallyport","vendor_name":"Sallyport","version":"1.2.3"}`
	call := got[0]["api"].(map[string]any)["request"].(map[string]any)["uid"].(string)
	want := []string{
		`{"activity_id":99,"activity_name":"decision","actor":{"app_name":"claude","authorizations":[{"decision":"deny","policy":{"name":"policy.tools[1]"}}],"session":{"uid":"s"},"user":{"name":"local","type":"User","type_id":1}},` +
			`"api":{"operation":"call_tool","request":{"uid":"` + call + `"},"service":{"name":"fs"}},"category_name":"Application Activity","category_uid":6,"class_name":"API Activity","class_uid":6003,"message":"call tool fs.write_file",` +
			`"metadata":{"correlation_uid":"x-1","log_name":"audit",` + product + `,"sequence":1,"uid":"1","version":"1.8.0"},"resources":[{"name":"write_file","type":"MCP call_tool"}],"severity":"Medium","severity_id":3,` +
			`"src_endpoint":{"name":"sandbox"},"status":"Failure","status_detail":"no","status_id":2,"time":1795435200000,"type_uid":600399}`,
		`{"activity_id":3,"activity_name":"Start","app":{"name":"fs","vendor_name":"Sallyport"},"category_name":"Application Activity","category_uid":6,"class_name":"Application Lifecycle","class_uid":6002,"message":"server fs started",` +
			`"metadata":{"correlation_uid":"","log_name":"audit",` + product + `,"sequence":2,"uid":"2","version":"1.8.0"},"severity":"Informational","severity_id":1,"status":"Success","status_id":1,"time":-62135596800000,"type_uid":600203}`,
		`{"activity_id":99,"activity_name":"question","actor":{"app_name":"claude","session":{"uid":"s"},"user":{"name":"local","type":"User","type_id":1}},` +
			`"api":{"operation":"call_tool","request":{"uid":"k3vq"},"service":{"name":"fs"}},"category_name":"Application Activity","category_uid":6,"class_name":"API Activity","class_uid":6003,"message":"asked k3vq.5 about 5 × fs.write_file",` +
			`"metadata":{"correlation_uid":"x-1","log_name":"audit",` + product + `,"sequence":3,"uid":"3","version":"1.8.0"},"resources":[{"name":"write_file","type":"MCP call_tool"}],"severity":"Informational","severity_id":1,` +
			`"src_endpoint":{"name":"sandbox"},"status":"Success","status_id":1,"time":1795435200000,"type_uid":600399}`,
		`{"activity_id":99,"activity_name":"answer","actor":{"app_name":"claude","authorizations":[{"decision":"deny"}],"session":{"uid":"s"},"user":{"name":"local","type":"User","type_id":1}},` +
			`"api":{"operation":"call_tool","request":{"uid":"k3vq"},"service":{"name":"fs"}},"category_name":"Application Activity","category_uid":6,"class_name":"API Activity","class_uid":6003,"duration":1000,"message":"no answer to k3vq about 5 × fs.write_file",` +
			`"metadata":{"correlation_uid":"x-1","log_name":"audit",` + product + `,"sequence":4,"uid":"4","version":"1.8.0"},"resources":[{"name":"write_file","type":"MCP call_tool"}],"severity":"Medium","severity_id":3,` +
			`"src_endpoint":{"name":"sandbox"},"status":"Failure","status_detail":"no answer came","status_id":2,"time":1795435200000,"type_uid":600399}`,
	}
	if len(got) != len(want) {
		t.Fatalf("got %d events, want %d", len(got), len(want))
	}
	for i := range want {
		if raw, _ := json.Marshal(got[i]); string(raw) != want[i] {
			t.Errorf("got  %s\nwant %s", raw, want[i])
		}
	}
}
