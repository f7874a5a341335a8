package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type contextT = context.Context

func itoa(n int) string { return strconv.Itoa(n) }

// posted is a message as a server reads it.
type posted struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name string `json:"name"`
	} `json:"params"`
	Result, Error json.RawMessage
}

func readPosted(r *http.Request) posted {
	var p posted
	data, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(data, &p) != nil {
		return posted{Method: "?"}
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	return p
}

func writeJSON(w http.ResponseWriter, p posted, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, p.ID, result)
}

// answering answers every request with one result, and other messages with 202.
func answering(result string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p := readPosted(r); {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case p.ID == nil || p.Method == "":
			w.WriteHeader(http.StatusAccepted)
		default:
			writeJSON(w, p, result)
		}
	})
}

func streamable(t testing.TB, n *Network, target Target, opts Options) *Streamable {
	t.Helper()
	c, err := n.NewStreamable(target, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// call makes one call over a connection of its own.
func call(t testing.TB, n *Network, target Target) (json.RawMessage, error) {
	t.Helper()
	c, err := n.NewStreamable(target, Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Stop(context.Background()) }()
	return c.Call(t.Context(), "ping", nil)
}
