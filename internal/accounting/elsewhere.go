package accounting

import (
	"time"

	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/usage/carbon"
)

// Ran books a finished run of a batch service, however often it is called, and
// returns its footprint.
func (b *Books) Ran(r *runs.Record) *carbon.Footprint {
	if r == nil || r.Result == nil {
		return nil
	}
	f := b.elsewhere(r)
	b.put(func() { b.records = append(b.records, r) })
	return &f
}

// elsewhere is the footprint of a run on another engine, of what its place
// measured.
func (b *Books) elsewhere(r *runs.Record) carbon.Footprint {
	out := r.Result
	u := carbon.Usage{Wall: wallOf(r), CPU: -1, Resolution: resolution, MemoryBytes: -1}
	if out.CPUSeconds > 0 {
		u.CPU = duration(out.CPUSeconds)
	}
	if out.MeanMemoryBytes > 0 {
		u.MemoryBytes = float64(out.MeanMemoryBytes)
	}
	if out.GPUModel != "" || out.GPUs > 0 || out.GPUJoules > 0 {
		u.GPUs = []carbon.GPU{{Model: out.GPUModel, Count: min(out.GPUs, maxGPUs), Joules: max(0, out.GPUJoules)}}
	}
	return b.config.Model.Footprint(u, carbon.Profile{CPUModel: out.CPUModel, PUE: b.config.Tables.PUE(r.Service)},
		b.config.Places.Elsewhere(r.Service, out.Region))
}

// wallOf is how long a run on another engine took: as its place says, or else as
// it was seen from here.
func wallOf(r *runs.Record) time.Duration {
	wall := duration(r.Result.RanSeconds)
	if wall == 0 && !r.Began.IsZero() && r.Ended.After(r.Began) {
		wall = r.Ended.Sub(r.Began)
	}
	return wall
}

// duration converts a number of seconds that was measured elsewhere.
func duration(seconds float64) time.Duration {
	const most = 400 * 24 * time.Hour
	if !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, most.Seconds()) * float64(time.Second))
}
