package settings

import (
	"slices"
	"time"
)

// The engines that run code somewhere else, and answer once.
const (
	EngineRunPod = "runpod"
	EngineKaggle = "kaggle"
)

// BatchEngines are all of them.
func BatchEngines() []string { return []string{EngineKaggle, EngineRunPod} }

// Runs is about runs of engines that work somewhere else.
type Runs struct {
	Timeout, MaxTimeout time.Duration
	Queue               time.Duration
	Keep                time.Duration // 0: for ever
	MaxDisk             int64
}

// declareBackends is what lets code leave this machine.
func declareBackends(s *Settings) *setting {
	return &setting{key: "backends", value: list(&s.Backends, func(e string) bool { return slices.Contains(BatchEngines(), e) }, "`kaggle`, `runpod`"), defaults: "none",
		help: "Engines besides `engine` that agents and `sallyport run --backend` may choose. They send code and files to a service, and may cost money there: none is on until it is named here."}
}

func declareRuns(r *Runs) []*setting {
	const day = 24 * time.Hour
	return []*setting{
		{key: "runs.timeout", value: duration(&r.Timeout, time.Second, 7*day), initial: "10m",
			help: "How long a run on `kaggle` or `runpod` may take where a call does not say; waiting for a machine is not counted. Where it is not set, it is never more than `runs.maxTimeout`."},
		{key: "runs.maxTimeout", value: duration(&r.MaxTimeout, time.Second, 7*day), initial: "12h",
			help: "The most that a call can ask for there."},
		{key: "runs.queue", value: duration(&r.Queue, 10*time.Second, 7*day), initial: "1h",
			help: "How long a run there may wait for a machine."},
		{key: "runs.keep", value: duration(&r.Keep, time.Minute, 3650*day).or("forever", 0), initial: "720h",
			help: "How long the output and the files of a run that has ended are kept here."},
		{key: "runs.maxDisk", value: size(&r.MaxDisk, 1<<30, 16<<40), initial: "32g",
			help: "Room on disk for the output and the files of all these runs together. One that has not ended counts as the most that it can leave (twice `kaggle.maxOutput`, as files may come in an archive). For one more, those that ended longest ago are removed; where that is not enough, it is refused."},
	}
}

// declareElsewhere is what places must offer that code is sent to.
func declareElsewhere(p *Policy) []*setting {
	return []*setting{
		{key: "policy.elsewhere.minIsolation", value: choice(&p.Remote.MinIsolation, "none", "platform", "container", "kernel"), initial: "platform",
			help: "The least isolation of the place that code is sent to, as `runpod` and `kaggle` tell it."},
		{key: "policy.elsewhere.memory", value: choice(&p.Remote.Memory, enforcement...), initial: "soft",
			help: "The least enforcement accepted of the limit on memory in that place."},
		{key: "policy.elsewhere.processes", value: choice(&p.Remote.Processes, enforcement...), initial: "soft",
			help: "The least enforcement accepted of the limit on processes in that place."},
	}
}
