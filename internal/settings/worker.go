package settings

import "time"

// Worker configures `sallyport worker runpod`.
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

// The engines that a worker can run code in.
const (
	EngineProcess   = "process"
	WorkerAutomatic = "auto"
)

func declareWorker(w *Worker) []*setting {
	const day = 24 * time.Hour
	return []*setting{
		{key: "worker.engine", value: choice(&w.Engine, EngineGVisor, EngineProcess, WorkerAutomatic), initial: EngineGVisor,
			help: "What `sallyport worker runpod` runs jobs in. `process` is for machines that are a sandbox themselves: there is only the container between the code and everything else. `auto` is `gvisor` if that runs and the machine has no GPU, and `process` otherwise. Every result says which one was used."},
		{key: "worker.concurrency", value: integer(&w.Concurrency, 1, 256), initial: "1",
			help: "How many jobs a worker takes at a time."},
		{key: "worker.sessions", value: integer(&w.Sessions, 0, 64), initial: "0",
			help: "How many named sessions a worker keeps between jobs. RunPod chooses the worker that gets a job: with more than one worker, finding a session again is luck."},
		{key: "worker.timeout", value: duration(&w.Timeout, time.Second, 7*day), initial: "30s",
			help: "How long a job's code may run if the job does not set a timeout. `MAX_EXECUTION_TIME` in the worker's environment, in seconds, is used if this is not set."},
		{key: "worker.maxTimeout", value: duration(&w.MaxTimeout, time.Second, 7*day), initial: "12h",
			help: "The longest timeout that a job can ask for."},
		{key: "worker.drain", value: duration(&w.Drain, 0, time.Hour), initial: "30s",
			help: "How long jobs may continue after the worker is asked to stop."},
		{key: "worker.keepResults", value: duration(&w.KeepResults, time.Minute, day), initial: "30m",
			help: "How long a worker keeps trying to deliver a result that RunPod does not accept. RunPod itself keeps results for at most half an hour."},
		{key: "worker.progress", value: duration(&w.Progress, time.Second, time.Hour).or("off", 0), initial: "off",
			help: "How often clients receive how long their job has been running."},
		{key: "worker.internet", value: boolean(&w.Internet), initial: "false",
			help: "Whether jobs may ask for the machine's network. Only the engine `process` can give it."},
		{key: "worker.refresh", value: boolean(&w.Refresh), initial: "false",
			help: "Whether RunPod replaces the machine after each job."},
		{key: "worker.files", value: size(&w.Files, 0, 8*mib), initial: "1m",
			help: "How much of the files that code leaves is sent to a client that does not ask for them explicitly."},
	}
}
