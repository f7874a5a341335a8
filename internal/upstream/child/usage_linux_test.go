package child

import (
	"log/slog"
	"testing"
	"time"
)

// TestUsed: what a program's children use is its own, while they run, when they
// have ended, and when it has.
func TestUsed(t *testing.T) {
	k := NewKeeper(slog.New(slog.DiscardHandler))
	defer k.Close()
	const busy = `sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done'; echo done; read line`
	p, err := k.Start(Spec{Path: "/bin/sh", Args: []string{"-c", busy}, Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	idle, err := k.Start(Spec{Path: "/bin/cat", Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdout.Read(make([]byte, 5)); err != nil { // the child has ended
		t.Fatal(err)
	}
	time.Sleep(fresh) // an older look is used until then
	cpu, bytes, ok := p.Used()
	if !ok || cpu < 50*time.Millisecond || bytes <= 0 {
		t.Errorf("got %v, %d bytes, %v; want what its child used", cpu, bytes, ok)
	}
	if others, _, ok := idle.Used(); !ok || others > cpu/2 {
		t.Errorf("got %v, %v of a program that waits beside one with %v", others, ok, cpu)
	}
	for _, one := range []*Process{p, idle} {
		if err := one.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if last, bytes, ok := p.Used(); !ok || last < cpu*9/10 || bytes >= 0 {
		t.Errorf("got %v, %d, %v after its end; %v before", last, bytes, ok, cpu)
	}
}
