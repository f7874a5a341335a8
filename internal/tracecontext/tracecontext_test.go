package tracecontext

import (
	"strings"
	"testing"
)

const client = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		parent, state string
		valid         bool
		wantState     string
	}{
		{client, "", true, ""},
		{client, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7", true, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"},
		{client, "a=\r\nb", true, ""},
		{client, "a=\"", true, "a=\""},
		{client, strings.Repeat("a=b,", 200) + "a=b", true, ""},
		{strings.Replace(client, "00-4", "01-4", 1), "", false, ""},
		{strings.ToUpper(client), "", false, ""},
		{client + "\n", "", false, ""},
		{client + "-x", "", false, ""},
		{"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", false, ""},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", "", false, ""},
		{"", "congo=1", false, ""},
	} {
		c := Parse(tt.parent, tt.state)
		if c.Valid() != tt.valid || c.State != tt.wantState {
			t.Errorf("%q, %q: got %v, %q, want %v, %q", tt.parent, tt.state, c.Valid(), c.State, tt.valid, tt.wantState)
		}
		if tt.valid && c.TraceParent() != tt.parent {
			t.Errorf("got %s, want %s", c.TraceParent(), tt.parent)
		}
	}
}

func TestBegin(t *testing.T) {
	parent := Parse(client, "")
	child := parent.Begin()
	if child.Trace != parent.Trace || child.Parent != parent.Span || child.Span == parent.Span || !child.Recorded {
		t.Errorf("got %+v, want a child of %+v", child, parent)
	}
	if grand := child.Child(); grand.Parent != child.Span || grand.Trace != child.Trace {
		t.Errorf("got %+v, want a child of %+v", grand, child)
	}
	unsampled := Parse(strings.TrimSuffix(client, "1")+"0", "")
	if got := unsampled.Begin(); got != unsampled || got.Child() != unsampled {
		t.Errorf("got %+v, want %+v, which is not recorded", got, unsampled)
	}
	root := Context{}.Begin()
	if !root.Valid() || root.Parent != [8]byte{} || root.Flags != sampled || Parse(root.TraceParent(), "").Trace != root.Trace {
		t.Errorf("got %+v, want the root of a new trace", root)
	}
	ctx := With(t.Context(), root)
	if got := From(With(ctx, Context{})); got != root {
		t.Errorf("got %+v, want %+v", got, root)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(client, "congo=t61rcWkgMzE")
	f.Fuzz(func(t *testing.T, parent, state string) {
		c := Parse(parent, state)
		if c.Valid() && (c.TraceParent() != parent || strings.ContainsAny(c.State, "\r\n \"\\") && c.State != state) {
			t.Errorf("%q, %q: got %q, %q", parent, state, c.TraceParent(), c.State)
		}
	})
}
