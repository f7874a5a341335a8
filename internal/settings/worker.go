package settings

import "time"

// Worker is about `sallyport worker runpod`.
type Worker struct {
	Engine      string
	Concurrency int
	Sessions    int
	Timeout     time.Duration
	MaxTimeout  time.Duration
	Drain       time.Duration
	KeepResults time.Duration
	Progress    time.Duration // 0: none
	Internet    bool
	Refresh     bool
	Files       int64
}

// What a worker runs code in.
const (
	EngineProcess   = "process"
	WorkerAutomatic = "auto"
)

func declareWorker(w *Worker) []*setting {
	const day = 24 * time.Hour
	return []*setting{
		{key: "worker.engine", value: choice(&w.Engine, EngineGVisor, EngineProcess, WorkerAutomatic), initial: EngineGVisor,
			help: "What `sallyport worker runpod` runs jobs in. `process` is for machines that are a sandbox themselves: a container's kernel is all that it has between code and everything else. `auto` is `gvisor` where that runs and the machine has no GPU, and `process` otherwise. Every result says which it was."},
		{key: "worker.concurrency", value: integer(&w.Concurrency, 1, 256), initial: "1",
			help: "How many jobs a worker takes at a time."},
		{key: "worker.sessions", value: integer(&w.Sessions, 0, 64), initial: "0",
			help: "How many named sessions a worker keeps between jobs. Which worker gets a job is RunPod's choice: with more than one of them a session is found by luck."},
		{key: "worker.timeout", value: duration(&w.Timeout, time.Second, 7*day), initial: "30s",
			help: "How long the code of a job may run that does not say it. `MAX_EXECUTION_TIME` in the worker's environment, in seconds, sets it where this does not."},
		{key: "worker.maxTimeout", value: duration(&w.MaxTimeout, time.Second, 7*day), initial: "12h",
			help: "The most that a job can ask for."},
		{key: "worker.drain", value: duration(&w.Drain, 0, time.Hour), initial: "30s",
			help: "How long jobs may go on when the worker is told to end."},
		{key: "worker.keepResults", value: duration(&w.KeepResults, time.Minute, day), initial: "30m",
			help: "How long a worker offers a result that RunPod does not take. RunPod keeps results no longer than half an hour itself."},
		{key: "worker.progress", value: duration(&w.Progress, time.Second, time.Hour).or("off", 0), initial: "off",
			help: "How often clients are told for how long their job has run."},
		{key: "worker.internet", value: boolean(&w.Internet), initial: "false",
			help: "Whether jobs may ask for the network of the machine. Engine `process` alone can give it."},
		{key: "worker.refresh", value: boolean(&w.Refresh), initial: "false",
			help: "Whether RunPod makes the machine anew after each job."},
		{key: "worker.files", value: size(&w.Files, 0, 8*mib), initial: "1m",
			help: "How much of the files that code leaves goes back to a client that does not say whether it wants them."},
	}
}
