package accounting

import (
	"path/filepath"
	"time"

	"github.com/sallyport/sallyport/internal/usage/carbon"
	"github.com/sallyport/sallyport/internal/usage/ledger"
)

// lastRuns is how many entries of a program LastRuns uses.
const lastRuns = 5

// LastRuns returns the mean usage of the last runs of a program, and how many
// runs that were; none if the ledger, which may be nil, has no run of it.
// Earlier reports that they are runs of other code in files of that name.
func LastRuns(book *ledger.Ledger, code, file string) (used carbon.Usage, runs int, earlier bool, err error) {
	if book == nil {
		return used, 0, false, nil
	}
	var same, named []ledger.Entry
	digest := Digest(code)
	if _, err := book.Read(time.Time{}, func(e *ledger.Entry) {
		switch {
		case e.Kind != ledger.Run || e.Runs < 1 || e.CPU == nil:
		case e.Code == digest:
			same = append(same, *e)
		case e.File != "" && filepath.Base(e.File) == filepath.Base(file):
			named = append(named, *e)
		}
	}); err != nil {
		return used, 0, false, err
	}
	if earlier = len(same) == 0; earlier {
		same = named
	}
	if len(same) == 0 {
		return used, 0, false, nil
	}
	wall, cpu, bytes, held := 0.0, 0.0, 0.0, 0.0
	for _, e := range same[max(0, len(same)-lastRuns):] {
		runs += e.Runs
		wall += e.Wall
		cpu += *e.CPU
		if e.Bytes != nil {
			bytes += *e.Bytes
			held += e.Wall
		}
	}
	mean := func(seconds float64) time.Duration {
		return time.Duration(seconds / float64(runs) * float64(time.Second))
	}
	used = carbon.Usage{Wall: mean(wall), CPU: mean(cpu), MemoryBytes: -1}
	if held > 0 { // of the runs whose memory is known
		used.MemoryBytes = bytes / held
	}
	return used, runs, earlier, nil
}
