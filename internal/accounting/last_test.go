package accounting

import (
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/usage/carbon"
	"github.com/sallyport/sallyport/internal/usage/ledger"
)

func TestLastRuns(t *testing.T) {
	number := func(f float64) *float64 { return &f }
	run := func(code, file string, wall, cpu float64, bytes *float64) ledger.Entry {
		return ledger.Entry{ID: file + code, Time: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Kind: ledger.Run, Runs: 1, Code: Digest(code), File: file, Wall: wall, CPU: number(cpu), Bytes: bytes}
	}
	entries := []ledger.Entry{run("a", "/x/a.py", 100, 100, nil)} // too long ago
	for range lastRuns - 1 {
		entries = append(entries, run("a", "/x/a.py", 2, 1, nil))
	}
	entries = append(entries, run("a", "/y/a.py", 12, 6, number(1000)), run("b", "/x/b.py", 8, 4, number(10)), ledger.Entry{ID: "idle", Kind: ledger.Rest, Runs: 1, File: "/x/c.py", CPU: number(1)})
	book := ledger.At(store.At(t.TempDir()).Sub("ledger"))
	if err := book.Append(entries); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, code, file string
		book             *ledger.Ledger
		want             carbon.Usage
		runs             int
		earlier          bool
	}{
		{"the same code", "a", "elsewhere.py", book, carbon.Usage{Wall: 4 * time.Second, CPU: 2 * time.Second, MemoryBytes: 1000. / 12}, lastRuns, false},
		{"other code in a file of that name", "new", "dir/b.py", book, carbon.Usage{Wall: 8 * time.Second, CPU: 4 * time.Second, MemoryBytes: 10. / 8}, 1, true},
		{"no run", "new", "c.py", book, carbon.Usage{}, 0, false},
		{"no ledger", "a", "a.py", nil, carbon.Usage{}, 0, false},
	}
	for _, tt := range tests {
		got, runs, earlier, err := LastRuns(tt.book, tt.code, tt.file)
		if err != nil || got.Wall != tt.want.Wall || got.CPU != tt.want.CPU || got.MemoryBytes != tt.want.MemoryBytes || runs != tt.runs || earlier != tt.earlier {
			t.Errorf("%s: got %+v of %d runs, earlier %t (%v), want %+v of %d, %t", tt.name, got, runs, earlier, err, tt.want, tt.runs, tt.earlier)
		}
	}
}
