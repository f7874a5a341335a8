package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"
)

// What can mean only one thing is taken, and noted.
func TestOddAnswers(t *testing.T) {
	const message = `{"jsonrpc":"2.0","id":ID,"result":"right"}`
	var pretty strings.Builder
	pretty.WriteString("{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": ID,\n  \"result\": [\n    {\"id\": 1},\n\n    {\"a\": \"}\\\"{\"},\n    7\n  ]\n}")
	for name, test := range map[string]struct{ sent, want, note string }{
		"a string":            {`{"jsonrpc":"2.0","id":"ID","result":"right"}`, `"right"`, "an id that is a string"},
		"a string of 1.0":     {`{"jsonrpc":"2.0","id":"ID.0","result":"right"}`, `"right"`, "an id that is a string"},
		"no version":          {`{"id":ID,"result":"right"}`, `"right"`, "2.0"},
		"another version":     {`{"jsonrpc":2.0,"id":ID,"result":"right"}`, `"right"`, "2.0"},
		"text in front":       {"Working..." + message, `"right"`, "in front"},
		"brackets in front":   {`[12:00:01] {a} {"b":1} {"c` + message, `"right"`, "in front"},
		"a prompt":            {"> \x1b[2K\x1b[1G" + message + "\x1b[0m", `"right"`, "in front"},
		"carriage returns":    {"10%\r20%\r" + message + "\r", `"right"`, "in front"},
		"an event":            {"data: " + message, `"right"`, "in front"},
		"a mark behind text":  {"x\xef\xbb\xbf" + message, `"right"`, "in front"},
		"bytes of no text":    {"\xff\xfe" + message, `"right"`, "in front"},
		"text behind":         {message + " [debug] done", `"right"`, "other text"},
		"a bracket too many":  {message + "}", `"right"`, "other text"},
		"two messages":        {`{"jsonrpc":"2.0","method":"note"}` + message, `"right"`, "second message"},
		"two behind text":     {`ok {"jsonrpc":"2.0","id":77,"result":1}` + message, `"right"`, "in front"},
		"lines":               {pretty.String(), "[\n{\"id\": 1},\n{\"a\": \"}\\\"{\"},\n7\n]", "several lines"},
		"lines behind a line": {"{\n" + `{"jsonrpc":"2.0","method":"note"}` + "\n" + pretty.String(), "[\n{\"id\": 1},\n{\"a\": \"}\\\"{\"},\n7\n]", "several lines"},
		"all members":         {`{"jsonrpc":"2.0","id":ID,"method":null,"params":null,"result":"right","error":null}`, `"right"`, ""},
		"the call's method":   {`{"jsonrpc":"2.0","id":ID,"method":"m","params":{},"result":"right"}`, `"right"`, ""},
		"an id of blanks":     {`{"jsonrpc":"2.0","id":" ID ","result":"right"}`, `"right"`, "not that of the request"},
		"no id":               {`{"jsonrpc":"2.0","result":"right"}`, `"right"`, "not that of the request"},
		"zeros":               {"\x00\x00" + message + "\x00", `"right"`, "zero"},
		"UTF-16":              {"\xff\xfe" + strings.Join(strings.Split(message, ""), "\x00") + "\x00\r\x00", `"right"`, "zero"},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			c, p := connect(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			for range 2 {
				ch := goCall(t.Context(), c, "m", "")
				id := string(p.recv().ID)
				p.send("%s", strings.NewReplacer("ID", id, "I\x00D", strings.Join(strings.Split(id, ""), "\x00")).Replace(test.sent))
				if got := <-ch; string(got.result) != test.want {
					t.Fatalf("got %q, %v, want %q", got.result, got.err, test.want)
				}
			}
			if got := strings.Join(c.Odd(), "\n"); !strings.Contains(got, test.note) {
				t.Errorf("noted %q, want %q", got, test.note)
			}
			if got := strings.Count(log.String(), "level=WARN"); got != len(c.Odd()) {
				t.Errorf("%d warnings for %q:\n%s", got, c.Odd(), log.String())
			}
		})
	}
}

// Language servers write headers, and no end of the line.
func TestHeadersOfLanguageServers(t *testing.T) {
	c, p := connect(t, Options{})
	for _, result := range []string{`1`, `"` + strings.Repeat("x", 100<<10) + `"`, `2`} {
		ch := goCall(t.Context(), c, "m", "")
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, p.recv().ID, result)
		fmt.Fprintf(p.out, "Content-Length: %d\r\nContent-Type: application/json\r\n\r\n%s", len(answer), answer)
		if got := <-ch; string(got.result) != result {
			t.Fatalf("got %.100s, %v, want %.100s", got.result, got.err, result)
		}
	}
	// The headers of something else are lines like others.
	ch := goCall(t.Context(), c, "m", "")
	id := p.recv().ID
	for _, size := range []string{"5", "500000", "99999999999999999999", "-1"} {
		p.send("HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n<html>", size)
	}
	p.send("Content-Length: 500000\r\n\r\n"+`{"jsonrpc":"2.0","id":%s,"result":3}`, id)
	if got := <-ch; string(got.result) != "3" {
		t.Errorf("got %s, %v", got.result, got.err)
	}
}

// Without a line end, silence follows a message.
func TestMessagesWithoutALineEnd(t *testing.T) {
	for _, form := range []string{
		`{"jsonrpc":"2.0","id":%s,"result":[{}]}`,
		" " + `{"jsonrpc":"2.0","id":%s,"result":[{}]}` + "\r",
		`{"jsonrpc":"2.0","id":%s,"result":[{}]}` + "\x00",
		"{\n  \"jsonrpc\": \"2.0\",\n  \"id\": %s,\n  \"result\":\n[{}]\n}",
	} {
		c, p := connect(t, Options{})
		for range 3 {
			ch := goCall(t.Context(), c, "m", "")
			fmt.Fprintf(p.out, form, p.recv().ID)
			if got := <-ch; string(got.result) != "[{}]" {
				t.Errorf("%q: got %s, %v", form, got.result, got.err)
			}
		}
	}
	// What follows a message is searched for a line end only once.
	l := newLineReader(strings.NewReader("{} {} {}"), 1<<20)
	for range 3 {
		if got, err := l.next(); err != nil || strings.TrimSpace(string(got.data)) != "{}" || l.searched != l.end {
			t.Errorf("got %q, %v, searched %d of %d bytes", got.data, err, l.searched, l.end)
		}
	}
	// How often the beginning of a message is read again is bounded.
	l = newLineReader(iotest.OneByteReader(strings.NewReader(`{"a":[`+strings.Repeat("{}", 10*maxTries)+"\n1\n")), 1<<20)
	if got, err := l.next(); err != nil || len(got.data) != 6+20*maxTries || l.tries != 0 {
		t.Errorf("got %d bytes, %v, %d tries", len(got.data), err, l.tries)
	}
}

// A copy of a message in other text is no message.
func TestMessagesInLogs(t *testing.T) {
	c, p := connect(t, Options{})
	ch := goCall(t.Context(), c, "m", "")
	id := string(p.recv().ID)
	for _, line := range []string{
		`<- {"jsonrpc":"2.0","id":ID,"method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":ID,"method":"tools/call"} took 3 ms`,
		`sent {"jsonrpc":"2.0","id":ID,"result":"wrong"} in 3 ms`,
		`sent '{"jsonrpc":"2.0","id":ID,"result":"wrong"}'`,
		`sent "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":\"wrong\"}"`,
		`x {"message": {"jsonrpc":"2.0","id":ID,"result":"wrong"}}`,
		`{"level":"info","message": {"jsonrpc":"2.0","id":ID,"result":"wrong"}}`,
		`{"level":"info","id":ID,"text":"working"}`,
		`x {"id":ID,"result":"wrong"}`,
		`x {"jsonrpc":"2.0","id":99,"result":"wrong"}`,
		`x {"jsonrpc":"2.0","id":"abc","result":"wrong"}`,
		strings.Repeat(`{"a" `, 100) + `{"jsonrpc":"2.0","id":ID,"result":"wrong"}`,
		"{\n  \"level\": \"info\",\n  \"id\": ID\n}",
	} {
		p.send("%s", strings.ReplaceAll(line, "ID", id))
	}
	p.send(`{"jsonrpc":"2.0","id":%s,"result":"right"}`, id)
	if got := <-ch; string(got.result) != `"right"` {
		t.Errorf("got %s, %v", got.result, got.err)
	}
	if asked := c.Stats().Requests; asked > 0 || len(c.Odd()) > 0 {
		t.Errorf("got %d requests, noted %q, want nothing", asked, c.Odd())
	}

	// A peer that answers again had only logged its answer.
	for i, want := range []string{`"log"`, `"right"`} {
		ch := goCall(t.Context(), c, "m", "")
		id := p.recv().ID
		p.send(`sending {"jsonrpc":"2.0","id":%s,"result":"log"}`, id)
		p.send(`{"jsonrpc":"2.0","id":%s,"result":"right"}`, id)
		if got := <-ch; string(got.result) != want {
			t.Errorf("answer %d: got %s, %v, want %s", i, got.result, got.err, want)
		}
		// The next answer shows that the reader has seen this one.
		ch = goCall(t.Context(), c, "m", "")
		p.send(`{"jsonrpc":"2.0","id":%s,"result":1}`, p.recv().ID)
		<-ch
	}
}

// While only one call was not answered, a message without a call's id is for it.
func TestAnswersToTheOnlyCall(t *testing.T) {
	c, p := connect(t, Options{MaxLine: 64 << 10})
	call := func(answers ...string) string {
		ch := goCall(t.Context(), c, "m", "")
		for id := string(p.recv().ID); len(answers) > 0; answers = answers[1:] {
			p.send("%s", strings.ReplaceAll(answers[0], "ID", id))
		}
		got := <-ch
		return fmt.Sprintf("%s %v", got.result, got.err)
	}
	const own, broken = `{"jsonrpc":"2.0","id":ID,"result":1}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`
	expect := func(want string, answers ...string) {
		t.Helper()
		if got := call(answers...); got != want {
			t.Errorf("%.200q: got %s, want %s", answers, got, want)
		}
	}
	expect("1 <nil>", own)
	expect(" no (error -32700)", broken)
	expect("2 <nil>", `{"jsonrpc":"2.0","id":null,"result":2}`)
	expect(" not valid JSON, near \"NaN\" (byte 27)", `{"jsonrpc":"2.0","result":NaN}`)
	expect(` not valid JSON, near "'jsonrpc':" (byte 2)`, `{'jsonrpc': '2.0', 'id': ID, 'result': 1}`)
	for _, id := range []string{`"ID"`, `null`} {
		expect(" answer exceeds the limit: 100036 bytes in one line, 65536 are allowed", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%*d}`, id, 100003-len(strings.Replace(id, "ID", "0", 1)), 1))
	}
	// A log's line, an answer of another server, and one that is late.
	expect("1 <nil>", `{"id":null,"result":2}`, `{"jsonrpc":"2.0","id":"abc","result":2}`, `{"jsonrpc":"2.0","id":1,"result":2}`, own)
	// The error may be that of the notification.
	if err := c.Notify(t.Context(), "n", nil); err != nil {
		t.Fatal(err)
	}
	p.recv()
	expect("1 <nil>", broken, own)
	expect(" no (error -32700)", broken)
	// A call that was given up may still be answered.
	ctx, cancel := context.WithCancel(t.Context())
	ch := goCall(ctx, c, "m", "")
	p.recv()
	cancel()
	<-ch
	p.recv()
	expect("1 <nil>", `{"jsonrpc":"2.0","id":null,"result":2}`, own)
}

// Before initialize is answered, there is nothing else to answer.
func TestAnswersToInitialize(t *testing.T) {
	for answer, want := range map[string]string{
		`{"jsonrpc":"2.0","id":null,"result":"right"}`:                               `"right"`,
		`{"jsonrpc":"2.0","result":"right"}`:                                         `"right"`,
		`{"jsonrpc":"2.0","id":"abc","result":"right"}`:                              `"right"`,
		`{"jsonrpc":"2.0","id":0,"result":"right"}`:                                  `"right"`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`:         "no (error -32700)",
		`{"jsonrpc":"2.0","id":1}`:                                                   `malformed answer: it has no result and no error: "{\"jsonrpc\":\"2.0\",\"id\":1}"`,
		`{"jsonrpc":"2.0","id":1,"results":"` + strings.Repeat("\u202e", 100) + `"}`: `malformed answer: it has no result and no error: "{\"jsonrpc\":\"2.0\",\"id\":1,\"results\":\"\u202e`,
		`{"jsonrpc":"2.0","id":1,"hush":"x"}`:                                        `malformed answer: it has no result and no error: (35 bytes)`,
		`{"jsonrpc":"2.0","result":NaN}`:                                             `not valid JSON, near "NaN"`,
	} {
		c, p := connect(t, Options{Redact: func(s string) string { return strings.ReplaceAll(s, "hush", "***") }})
		ch := goCall(t.Context(), c, "initialize", "")
		p.recv()
		p.send("%s", `{"level":"error","error":"not an answer"}`)
		p.send("%s", answer)
		got := <-ch
		text := string(got.result)
		if got.err != nil {
			text = got.err.Error()
		}
		if !strings.HasPrefix(text, want) || len(text) > 2000 {
			t.Errorf("%.80s: got %s, want %s", answer, text, want)
		}
	}
	// A later call is not the only one that a message may be for.
	c, p := connect(t, Options{})
	first := goCall(t.Context(), c, "server/discover", "")
	p.recv()
	second := goCall(t.Context(), c, "initialize", "")
	m := p.recv()
	p.send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`)
	p.send(`{"jsonrpc":"2.0","id":%s,"result":2}`, m.ID)
	p.send(`{"jsonrpc":"2.0","id":1,"result":1}`)
	if a, b := <-first, <-second; string(a.result) != "1" || string(b.result) != "2" {
		t.Errorf("got %s, %v and %s, %v", a.result, a.err, b.result, b.err)
	}
}

// An answer that no call can have is kept, for the error of the one that waits.
func TestUnusableAnswersAreKept(t *testing.T) {
	c, p := connect(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ch := goCall(ctx, c, "m", "")
	m := p.recv()
	other := goCall(t.Context(), c, "m", "")
	last := p.recv()
	p.send(`{"jsonrpc":"2.0","id":"abc","result":1}`)
	p.send(`{"jsonrpc":"2.0","id":%s,"result":1}`, last.ID)
	<-other
	cancel()
	if got := <-ch; !errors.Is(got.err, context.Canceled) {
		t.Errorf("got %v for %s", got.err, m.ID)
	}
	if got := string(c.Junk()); got != `{"jsonrpc":"2.0","id":"abc","result":1}`+"\n" {
		t.Errorf("kept %q", got)
	}
}

// A message over several lines is bounded.
func TestSpreadIsBounded(t *testing.T) {
	c, p := connect(t, Options{})
	ch := goCall(t.Context(), c, "m", "")
	m := p.recv()
	p.send("{")
	for range 40 {
		p.send("%s,", strings.Repeat("[", 30<<10))
	}
	p.send(`{"id":%s,"result":1}`, m.ID)
	if got := <-ch; string(got.result) != "1" {
		t.Errorf("got %s, %v", got.result, got.err)
	}
}
