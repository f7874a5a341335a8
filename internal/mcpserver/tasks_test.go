package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
	"github.com/sallyport/sallyport/internal/store"
)

// meta is the metadata of a request of a client that calls itself so.
func meta(name string, capabilities string) string {
	return fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":%q,"version":"1"},"io.modelcontextprotocol/clientCapabilities":%s}`, name, capabilities)
}

var (
	withTasks    = meta("test", `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	withoutTasks = meta("test", `{}`)
)

// request sends a request and returns its result or its error.
func (c *client) request(id, method, params string) (result, failure map[string]any) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, id, method, params))
	m := c.receive()
	if got := fmt.Sprint(m["id"]); got != id {
		c.t.Fatalf("got %v, want the answer to %s", m, id)
	}
	result, _ = m["result"].(map[string]any)
	failure, _ = m["error"].(map[string]any)
	return result, failure
}

// run calls run_python.
func (c *client) run(id, code, meta string) map[string]any {
	c.t.Helper()
	result, failure := c.request(id, "tools/call", fmt.Sprintf(`"name":"run_python","arguments":{"code":%q},%s`, code, meta))
	if failure != nil {
		c.t.Fatalf("%s: %v", code, failure)
	}
	return result
}

// terminal asks for a task until it has ended.
func (c *client) terminal(id string) map[string]any {
	c.t.Helper()
	for {
		task, failure := c.request("1000", "tasks/get", fmt.Sprintf(`"taskId":%q,%s`, id, withTasks))
		if failure != nil {
			c.t.Fatalf("tasks/get: %v", failure)
		}
		if task["resultType"] != "complete" {
			c.t.Fatalf("tasks/get: got %v", task)
		}
		if task["status"] != "working" {
			return task
		}
		time.Sleep(time.Millisecond)
	}
}

// withSet serves with tasks: a call that waits becomes one.
func withSet(t *testing.T, moment time.Duration, sdkOnly bool, exec Executor) *client {
	t.Helper()
	set := tasks.New(tasks.Options{Log: slog.New(slog.DiscardHandler), Dir: store.At(t.TempDir()), Moment: moment})
	t.Cleanup(func() { set.Close(broker.ErrStop) })
	return serve(t, Config{Tasks: set, SDKOnly: sdkOnly, Executor: exec, AnswerWithin: time.Hour})
}

// gatedExecutor runs the code "gate" until its gate is open.
type gatedExecutor struct {
	stubExecutor
	gate chan struct{}
}

func (e *gatedExecutor) Submit(req broker.Request) func(context.Context) *broker.Result {
	if req.Code != "gate" {
		return e.stubExecutor.Submit(req)
	}
	return func(context.Context) *broker.Result {
		<-e.gate
		zero := 0
		return &broker.Result{Status: broker.Success, ExitCode: &zero, Stdout: []string{"through"}}
	}
}

func TestQuickCallsAreAnswered(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		c := withSet(t, time.Hour, sdkOnly, nil)
		for i := range 2 { // the first goes through the SDK
			if got := c.run(fmt.Sprint(i), "print a", withTasks); got["resultType"] != "complete" || got["taskId"] != nil || got["content"] == nil {
				t.Errorf("SDK only %v: got %v, want a result", sdkOnly, got)
			}
		}
	}
}

func TestTasks(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("SDK only %v", sdkOnly), func(t *testing.T) {
			t.Parallel()
			exec := &gatedExecutor{gate: make(chan struct{})}
			c := withSet(t, time.Nanosecond, sdkOnly, exec)
			discovered, _ := c.request("1", "server/discover", withTasks)
			capabilities, _ := json.Marshal(discovered["capabilities"])
			if !strings.Contains(string(capabilities), `"extensions":{"io.modelcontextprotocol/tasks":{}}`) || strings.Contains(string(capabilities), `"tasks":{"`) {
				t.Errorf("capabilities: %s, want the extension", capabilities)
			}
			for i, end := range []string{"gate", "wait 1h"} {
				task := c.run(fmt.Sprint(10+i), end, withTasks)
				id, _ := task["taskId"].(string)
				for _, key := range []string{"createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"} {
					if task[key] == nil {
						t.Errorf("%s: got %v, want %s", end, task, key)
					}
				}
				if task["resultType"] != "task" || task["status"] != "working" || id == "" || task["result"] != nil {
					t.Errorf("%s: got %v, want a task", end, task)
				}
				if end == "gate" {
					close(exec.gate)
					got := c.terminal(id)
					result, _ := got["result"].(map[string]any)
					if got["status"] != "completed" || result["content"] == nil || result["isError"] == true {
						t.Errorf("%s: got %v", end, got)
					}
					continue
				}
				for task["statusMessage"] != "working on it" { // once it has printed that
					task, _ = c.request("19", "tasks/get", fmt.Sprintf(`"taskId":%q,%s`, id, withTasks))
				}
				for range 2 {
					ack, failure := c.request("20", "tasks/cancel", fmt.Sprintf(`"taskId":%q,%s`, id, withTasks))
					if ack["resultType"] != "complete" || ack["taskId"] != nil || failure != nil {
						t.Errorf("cancel: got %v, %v", ack, failure)
					}
					if got := c.terminal(id); got["status"] != "cancelled" || got["result"] != nil {
						t.Errorf("cancelled: got %v", got)
					}
				}
				if ack, failure := c.request("21", "tasks/update", fmt.Sprintf(`"taskId":%q,"inputResponses":{"x":{}},%s`, id, withTasks)); ack["resultType"] != "complete" || failure != nil {
					t.Errorf("update: got %v, %v", ack, failure)
				}
			}
			if sync := c.run("30", "wait 1ms", withoutTasks); sync["resultType"] != "complete" || sync["taskId"] != nil {
				t.Errorf("a client without the extension: got %v", sync)
			}
			for i, tt := range []struct {
				method, params, meta string
				want                 int
			}{
				{"tasks/get", `"taskId":"x",`, withoutTasks, -32021},
				{"tasks/cancel", `"taskId":"x",`, withoutTasks, -32021},
				{"tasks/update", `"taskId":"x",`, withoutTasks, -32021},
				{"subscriptions/listen", `"notifications":{"taskIds":["x"]},`, withoutTasks, -32021},
				{"tasks/get", `"taskId":"x",`, withTasks, -32602},
				{"tasks/cancel", `"taskId":"x",`, withTasks, -32602},
				{"tasks/update", `"taskId":"x",`, withTasks, -32602},
				{"tasks/get", ``, withTasks, -32602},
				{"tasks/list", ``, withTasks, -32601},
				{"tasks/result", `"taskId":"x",`, withTasks, -32601},
			} {
				result, failure := c.request(fmt.Sprint(40+i), tt.method, tt.params+tt.meta)
				data, _ := json.Marshal(failure["data"])
				if fmt.Sprint(failure["code"]) != fmt.Sprint(tt.want) || tt.want == -32021 && !strings.Contains(string(data), `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`) {
					t.Errorf("%s: got %v, %v %s; want error %v", tt.method, result, failure, data, tt.want)
				}
			}
		})
	}
}

// The revisions before the extension have none of it.
func TestNoTasksInOldRevisions(t *testing.T) {
	c := withSet(t, time.Nanosecond, false, nil)
	c.handshake(legacyLatest)
	if _, failure := c.request("1", "tasks/get", `"taskId":"x"`); fmt.Sprint(failure["code"]) != "-32601" {
		t.Errorf("got %v, want that the method is unknown", failure)
	}
	got, _ := c.request("2", "tools/call", `"name":"run_python","arguments":{"code":"wait 1ms"},"_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`)
	if got["taskId"] != nil || got["content"] == nil {
		t.Errorf("got %v, want the result", got)
	}
}

func TestTaskNotifications(t *testing.T) {
	c := withSet(t, time.Nanosecond, false, nil)
	id := c.run("1", "wait 1h", withTasks)["taskId"].(string)
	listen := func(request string) {
		t.Helper()
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"subscriptions/listen","params":{"notifications":{"taskIds":[%q,"other"]},%s}}`, request, id, withTasks))
		ack := c.receive()
		if got, want := fmt.Sprint(ack["params"]), fmt.Sprintf("map[_meta:map[io.modelcontextprotocol/subscriptionId:%s] notifications:map[taskIds:[%s]]]", request, id); ack["method"] != "notifications/subscriptions/acknowledged" || got != want {
			t.Errorf("got %v, want an acknowledgement %s", ack, want)
		}
	}
	next := func(request, status string) {
		t.Helper()
		m := c.receive()
		params, _ := m["params"].(map[string]any)
		about, _ := params["_meta"].(map[string]any)
		if m["method"] != "notifications/tasks" || params["taskId"] != id || params["status"] != status || about["io.modelcontextprotocol/subscriptionId"] != request {
			t.Errorf("got %v, want %s for %s", m, status, request)
		}
	}
	listen("left")
	next("left", "working")
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"left"}}`)
	listen("kept")
	next("kept", "working")
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"tasks/cancel","params":{"taskId":%q,%s}}`, id, withTasks))
	seen := map[string]bool{}
	for range 3 { // the acknowledgement and the others come in either order
		m := c.receive()
		switch {
		case fmt.Sprint(m["id"]) == "5":
			seen["acknowledged"] = true
		case m["method"] == "notifications/tasks":
			params := m["params"].(map[string]any)
			seen[fmt.Sprint(params["status"])] = true
		case m["id"] == "kept":
			seen["the end"] = true
		default:
			t.Errorf("got %v", m)
		}
	}
	if len(seen) != 3 || !seen["cancelled"] {
		t.Errorf("got %v, want an acknowledgement, the status cancelled and the end of the subscription", seen)
	}
	listen("late") // all has ended
	next("late", "cancelled")
	if m := c.receive(); m["id"] != "late" || m["result"] == nil {
		t.Errorf("got %v, want the end of the subscription", m)
	}
}

// What another client began, and what ended with a connection.
func TestTasksOfOthers(t *testing.T) {
	c := withSet(t, time.Nanosecond, false, nil)
	id := c.run("1", "wait 1h", withTasks)["taskId"].(string)
	stranger := meta("stranger", `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	for _, method := range []string{"tasks/get", "tasks/cancel"} {
		if _, failure := c.request("2", method, fmt.Sprintf(`"taskId":%q,%s`, id, stranger)); fmt.Sprint(failure["code"]) != "-32602" {
			t.Errorf("%s: got %v, want no such task", method, failure)
		}
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
}

// endless runs code until its gate is open, and then its time is up.
type endless struct{ gatedExecutor }

func (e *endless) Submit(req broker.Request) func(context.Context) *broker.Result {
	return func(context.Context) *broker.Result {
		<-e.gate
		return &broker.Result{Status: broker.Timeout, Error: "Execution timed out after 30s", TimeoutSeconds: 30}
	}
}

// A result survives its client's connection, whatever it is. The client reads it when
// it has connected again, and no other of its name does while it is connected.
func TestTasksOutliveTheirConnection(t *testing.T) {
	set := tasks.New(tasks.Options{Log: slog.New(slog.DiscardHandler), Dir: store.At(t.TempDir()), Moment: time.Nanosecond})
	t.Cleanup(func() { set.Close(broker.ErrStop) })
	exec := &endless{gatedExecutor{gate: make(chan struct{})}}
	connect := func(id string) *client { return serve(t, Config{Tasks: set, Executor: exec, ClientID: id}) }
	first, other := connect("first"), connect("other")
	id := first.run("1", "gate", withTasks)["taskId"].(string)
	refused := func() {
		t.Helper()
		if got, failure := other.request("2", "tasks/get", fmt.Sprintf(`"taskId":%q,%s`, id, withTasks)); failure == nil {
			t.Errorf("another client: got %v, want no such task", got)
		}
	}
	refused()
	if err := first.end(); err != nil {
		t.Error(err)
	}
	again := connect("first")
	// Once this has an answer, it is connected.
	again.request("1", "tasks/get", fmt.Sprintf(`"taskId":%q,%s`, id, withTasks))
	refused()
	close(exec.gate)
	got := again.terminal(id)
	result, _ := json.Marshal(got["result"])
	if got["status"] != "completed" || !strings.Contains(string(result), "timed out after 30s") {
		t.Errorf("got %v, want the result", got)
	}
	refused()
	if err := again.end(); err != nil {
		t.Error(err)
	}
	if got := connect("anew").terminal(id); got["status"] != "completed" {
		t.Errorf("a client of the same name that was started anew: got %v", got)
	}
}

// The real guest: a task is cancelled, and its session goes on.
func TestTaskEndToEnd(t *testing.T) {
	c := withSet(t, time.Nanosecond, false, newClient(t))
	c.run("1", "x = 6 * 7", withoutTasks)
	task := c.run("2", "print('a', flush=True)\nimport asyncio\nawait asyncio.sleep(600)", withTasks)
	id, _ := task["taskId"].(string)
	if id == "" {
		t.Fatalf("got %v, want a task", task)
	}
	if ack, failure := c.request("3", "tasks/cancel", fmt.Sprintf(`"taskId":%q,%s`, id, withTasks)); failure != nil {
		t.Errorf("cancel: %v, %v", ack, failure)
	}
	if got := c.terminal(id); got["status"] != "cancelled" {
		t.Errorf("got %v, want a cancelled task", got)
	}
	result, _ := json.Marshal(c.run("4", "x", withoutTasks))
	if !strings.Contains(string(result), `"text":"42"`) {
		t.Errorf("got %s, want the session's variable", result)
	}
}
