// Command echoserver is an MCP server over standard input and output that does
// as little as one can, so that a measured call is the path's time and not the
// server's. Its tools: echo answers its text, sleep50 answers after 50 ms (any
// number at once), big10mb answers ten million characters. With -tools N it
// lists that many tools, for measurements of what a large catalogue costs.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const bigSize = 10_000_000

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type call struct {
	Name      string `json:"name"`
	Arguments struct {
		Text string `json:"text"`
	} `json:"arguments"`
}

type server struct {
	mu    sync.Mutex // guards out
	out   io.Writer
	tools json.RawMessage
	big   []byte
}

func main() {
	n := flag.Int("tools", 3, "how many tools to list, 3 at least")
	flag.Parse()
	s := &server{out: os.Stdout, tools: toolList(*n), big: textResult(strings.Repeat("x", bigSize))}
	if err := s.serve(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "echoserver:", err)
		os.Exit(1)
	}
}

func (s *server) serve(in io.Reader) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var req request
			if err := json.Unmarshal(line, &req); err != nil {
				return err
			}
			if len(req.ID) > 0 {
				s.handle(req)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *server) handle(req request) {
	switch req.Method {
	case "initialize":
		var p struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		if err := json.Unmarshal(req.Params, &p); err != nil || p.ProtocolVersion == "" {
			p.ProtocolVersion = "2025-11-25"
		}
		version, err := json.Marshal(p.ProtocolVersion)
		if err != nil {
			version = []byte(`"2025-11-25"`)
		}
		s.answer(req.ID, fmt.Appendf(nil,
			`{"protocolVersion":%s,"capabilities":{"tools":{}},"serverInfo":{"name":"echoserver","version":"1"}}`, version))
	case "ping":
		s.answer(req.ID, []byte(`{}`))
	case "tools/list":
		s.answer(req.ID, s.tools)
	case "tools/call":
		s.call(req)
	default:
		s.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", req.ID))
	}
}

func (s *server) call(req request) {
	var c call
	if err := json.Unmarshal(req.Params, &c); err != nil {
		s.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"bad params"}}`+"\n", req.ID))
		return
	}
	switch c.Name {
	case "echo":
		s.answer(req.ID, textResult(c.Arguments.Text))
	case "sleep50":
		time.AfterFunc(50*time.Millisecond, func() { s.answer(req.ID, textResult("slept")) })
	case "big10mb":
		s.answer(req.ID, s.big)
	default:
		s.answer(req.ID, []byte(`{"content":[{"type":"text","text":"no such tool"}],"isError":true}`))
	}
}

func (s *server) answer(id, result []byte) {
	line := make([]byte, 0, len(result)+len(id)+32)
	line = append(line, `{"jsonrpc":"2.0","id":`...)
	line = append(line, id...)
	line = append(line, `,"result":`...)
	line = append(line, result...)
	s.write(append(line, '}', '\n'))
}

// write sends one line. A client that has gone is no error of ours: the next
// read ends the program.
func (s *server) write(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.Write(line)
}

func textResult(text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil { // a string always has a JSON form
		quoted = []byte(`""`)
	}
	return fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]}`, quoted)
}

func toolList(n int) json.RawMessage {
	type tool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	none := json.RawMessage(`{"type":"object","properties":{}}`)
	tools := []tool{
		{"echo", "Answers its text", json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)},
		{"sleep50", "Answers after 50 milliseconds", none},
		{"big10mb", "Answers ten million characters", none},
	}
	for i := len(tools); i < n; i++ {
		tools = append(tools, tool{fmt.Sprintf("filler_%d", i), "One more tool in the list, with a description of usual length", none})
	}
	list, err := json.Marshal(map[string]any{"tools": tools})
	if err != nil {
		list = []byte(`{"tools":[]}`)
	}
	return list
}
