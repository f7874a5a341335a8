package mcpserver

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHeartbeats(t *testing.T) {
	for _, version := range revisions {
		for _, sdkOnly := range []bool{false, true} {
			for _, token := range []string{`"tok"`, "42"} {
				t.Run(fmt.Sprintf("%s, SDK only %v, token %s", version, sdkOnly, token), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := serve(t, Config{SDKOnly: sdkOnly})
						c.open(version)
						meta := `"progressToken":` + token
						if stateless(version) {
							meta += "," + modernMeta
						}
						c.send(call("1", "wait 8s", `,"_meta":{`+meta+`}`))
						for _, at := range []string{"1", "4", "7"} {
							got := c.receive()
							params, _ := got["params"].(map[string]any)
							if got["method"] != "notifications/progress" || fmt.Sprint(params["progress"]) != at ||
								fmt.Sprint(params["progressToken"]) != strings.Trim(token, `"`) || params["message"] != "working on it" {
								t.Errorf("after %s s: %v", at, got)
							}
						}
						if got := c.receive(); fmt.Sprint(got["id"]) != "1" || got["result"] == nil {
							t.Errorf("answer: %v", got)
						}
						// Nothing follows the answer.
						c.send(call("2", "wait 4s", ""))
						if got := c.receive(); fmt.Sprint(got["id"]) != "2" {
							t.Errorf("after the answer: %v", got)
						}
						if err := c.end(); err != nil {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}

func TestHeartbeatsSayWhatTheCodeDoes(t *testing.T) {
	h := &heartbeat{}
	say := func(want string) {
		t.Helper()
		if got := h.message(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		h.printed = false
	}
	doing := ""
	h.activity.Follow(func() string { return doing })
	say("running code")
	doing = "starting server github"
	say("starting server github")
	h.output([]byte("printed\n"))
	say("printed")
	say("starting server github")
	doing = ""
	say("printed")
	h.tail = nil
	doing = "a\x1b[1m\n" + strings.Repeat("é", maxMessage) // a server may have said it
	say(`a\u{1b}[1m ` + strings.Repeat("é", (maxMessage-len("a\x1b[1m\n"))/2))
}

func TestPatience(t *testing.T) {
	for _, tt := range []struct {
		setting time.Duration
		client  string
		want    time.Duration
	}{
		{50 * time.Second, "unknown", 50 * time.Second},
		{50 * time.Second, "claude-code", 110 * time.Second},
		{5 * time.Minute, "claude-code", 5 * time.Minute},
		{0, "claude-code", 0},
		{50 * time.Second, "Visual Studio Code", 4 * time.Minute},
		{50 * time.Second, "codex-mcp-client", 50 * time.Second},
		{5 * time.Minute, "codex-mcp-client", 5 * time.Minute},
		{5 * time.Minute, "claude-ai", 50 * time.Second},
		{20 * time.Second, "claude-ai", 20 * time.Second},
		{0, "claude-ai", 0},
	} {
		c := Config{AnswerWithin: tt.setting}
		if got := c.within(tt.client); got != tt.want {
			t.Errorf("%v for %s: got %v, want %v", tt.setting, tt.client, got, tt.want)
		}
	}
}

func TestLastLine(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"\n \n", ""},
		{"one", "one"},
		{"one\ntwo\n\n", "two"},
		{"10%\r20%\r", "20%"},
		{"a\xffb\xe2\x82", "ab"},
		{strings.Repeat("x", 300), strings.Repeat("x", 200)},
		{"a\x1b]0;t\x07b\u202ec", `ab\u{202e}c`},
		{"10%\r\x1b[32m20%\x1b[0m\x1b[K", "20%"},
		{"one\n20%\x1b[2K\r", "one"},
	}
	for _, tt := range tests {
		if got := lastLine([]byte(tt.in)); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestHeartbeatLooksAtTheEndOfTheOutputOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHeartbeat(func(float64, string) {})
		defer h.stop()
		for range 100 {
			h.output([]byte(strings.Repeat("y", keptTail/3)))
		}
		h.output([]byte("\nend"))
		if len(h.tail) != keptTail || lastLine(h.tail) != "end" {
			t.Errorf("%d bytes kept, last line %q", len(h.tail), lastLine(h.tail))
		}
		h.output([]byte(strings.Repeat("z", 3*keptTail)))
		if len(h.tail) != keptTail {
			t.Errorf("%d bytes kept of a large write", len(h.tail))
		}
	})
}

// A client that does not read holds up neither code nor whoever asks what it does.
func TestHeartbeatOfAStuckClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := make(chan struct{})
		h := startHeartbeat(func(float64, string) { <-reads })
		time.Sleep(firstBeat)
		synctest.Wait() // it is being sent
		h.output([]byte("more\n"))
		if got := h.describe(); got != "more" {
			t.Errorf("got %q, want the last line", got)
		}
		close(reads)
		h.stop()
	})
}
