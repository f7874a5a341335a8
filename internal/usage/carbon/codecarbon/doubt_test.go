package codecarbon

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// TestDoubtIsBounded: a dashboard that never says what it took makes no record
// that is too large to be read, and no energy is lost.
func TestDoubtIsBounded(t *testing.T) {
	r := record{Version: recordVersion}
	const n = 50_000
	for i := range n {
		r.doubt(Emission{Timestamp: stamp(time.Unix(int64(i), 0)), RunID: "8edb03e1-1111-4222-8333-444455556666", Duration: 30, Emissions: 1e-9,
			CPUEnergy: 1e-6 / 3, RAMEnergy: 1e-6 / 3, GPUEnergy: 1e-6 / 3, Energy: 1e-6})
	}
	raw, err := json.Marshal(r)
	if err != nil || len(raw) > maxRecord {
		t.Errorf("the record takes %d bytes (%v), want at most the %d that are read", len(raw), err, maxRecord)
	}
	var energy, parts float64
	var seconds int64
	for _, e := range r.Doubtful {
		energy, parts, seconds = energy+e.Energy, parts+e.CPUEnergy+e.GPUEnergy+e.RAMEnergy, seconds+e.Duration
	}
	if math.Abs(energy-n*1e-6) > 1e-6 || math.Abs(parts-energy) > 1e-6 || seconds != n*30 {
		t.Errorf("got %g kWh (parts %g) of %d s, want %g of %d", energy, parts, seconds, n*1e-6, n*30)
	}
}
