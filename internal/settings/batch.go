package settings

import (
	"slices"
	"time"
)

// The batch services, which run code on other machines and answer once.
const (
	ServiceRunPod = "runpod"
	ServiceKaggle = "kaggle"
)

// BatchServices returns the names of all batch services.
func BatchServices() []string { return []string{ServiceKaggle, ServiceRunPod} }

// Runs configures runs on batch services.
type Runs struct {
	Timeout, MaxTimeout time.Duration
	Queue               time.Duration
	Keep                time.Duration // 0: forever
	MaxDisk             int64
}

// declareBatchServices declares the setting that lets code leave this machine.
func declareBatchServices(s *Settings) *setting {
	return &setting{key: "batch.services", value: list(&s.BatchServices, func(e string) bool { return slices.Contains(BatchServices(), e) }, "`kaggle`, `runpod`"), defaults: "none",
		help: "Batch services that agents and `sallyport run --batch` may choose. They receive code and files, and may cost money: none is on until it is named here."}
}

func declareRuns(r *Runs) []*setting {
	const day = 24 * time.Hour
	return []*setting{
		{key: "runs.timeout", value: duration(&r.Timeout, time.Second, 7*day), initial: "10m",
			help: "How long a run on a batch service may take if a call does not set a timeout; waiting for a machine is not counted. If this is not set, it is at most `runs.maxTimeout`."},
		{key: "runs.maxTimeout", value: duration(&r.MaxTimeout, time.Second, 7*day), initial: "12h",
			help: "The longest timeout that a call can ask for."},
		{key: "runs.queue", value: duration(&r.Queue, 10*time.Second, 7*day), initial: "1h",
			help: "How long a run may wait for a machine."},
		{key: "runs.keep", value: duration(&r.Keep, time.Minute, 3650*day).or("forever", 0), initial: "720h",
			help: "How long the output and the files of a run that has ended are kept on this machine."},
		{key: "runs.maxDisk", value: size(&r.MaxDisk, 1<<30, 16<<40), initial: "32g",
			help: "Disk space for the output and the files of all runs together. A run that has not ended counts with the most that it can leave (twice `kaggle.maxOutput`, as files may come in an archive). To make room for another run, those that ended longest ago are removed; if that is not enough, the run is refused."},
	}
}

// declareRemote declares what a machine that code is sent to must offer.
func declareRemote(p *Policy) []*setting {
	return []*setting{
		{key: "policy.batchServices.minIsolation", value: choice(&p.Remote.MinIsolation, "none", "platform", "container", "wasm", "kernel"), initial: "platform",
			help: "The least isolation of the machine that code is sent to, as `runpod` and `kaggle` report it."},
		{key: "policy.batchServices.memory", value: choice(&p.Remote.Memory, enforcement...), initial: "soft",
			help: "The least enforcement accepted of the limit on memory there."},
		{key: "policy.batchServices.processes", value: choice(&p.Remote.Processes, enforcement...), initial: "soft",
			help: "The least enforcement accepted of the limit on processes there."},
	}
}
