package codecarbon

import "errors"

// maxDoubtful bounds the emissions in doubt of one run: a dashboard that never
// says what it took must not make a record that is too large to be read.
const maxDoubtful = 1000

// doubt keeps an emission that may have been taken, as a part of the last one
// where there are many.
func (r *record) doubt(e Emission) {
	n := len(r.Doubtful)
	if n < maxDoubtful {
		r.Doubtful = append(r.Doubtful, e)
		return
	}
	last := &r.Doubtful[n-1]
	last.Duration += e.Duration
	last.Emissions += e.Emissions
	last.CPUEnergy += e.CPUEnergy
	last.GPUEnergy += e.GPUEnergy
	last.RAMEnergy += e.RAMEnergy
	last.Energy += e.Energy
}

// Decide sends emissions of which the dashboard does not say whether it took
// them once more, or forgets them. It says how many there were.
func (o *Outbox) Decide(resend bool) (n int, err error) {
	names, err := o.opts.Dir.List()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		err = errors.Join(err, o.change(name, func(r *record) {
			n += len(r.Doubtful)
			for _, e := range r.Doubtful {
				if resend {
					r.Pending.add(Delta{Seconds: float64(e.Duration), Kilograms: e.Emissions, CPU: e.CPUEnergy, GPU: e.GPUEnergy, RAM: e.RAMEnergy})
				}
			}
			r.Doubtful, r.Trouble = nil, ""
		}))
	}
	return n, err
}
