package settings

import (
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// Deploy configures `sallyport deploy runpod`.
type Deploy struct {
	Name        string
	URL         string
	Image       string
	GPUs        []string
	GPUCount    int
	CPU         string
	VCPUs       int
	Disk        int
	MinWorkers  int
	MaxWorkers  int
	Idle        time.Duration
	Timeout     time.Duration
	QueueDelay  time.Duration
	FlashBoot   string
	Registry    string
	DataCenters []string
	Wait        time.Duration
}

var (
	serviceName = lazyregexp.New(`\A[A-Za-z0-9][A-Za-z0-9 _.-]{0,63}\z`)
	serviceWord = lazyregexp.New(`\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\z`)
)

func declareDeploy(d *Deploy) []*setting {
	const day = 24 * time.Hour
	word := func(s string) bool { return serviceWord().MatchString(s) }
	return []*setting{
		{key: "deploy.runpod.name", value: matching(&d.Name, serviceName().MatchString, "letters, digits, spaces and . _ -"), initial: "sallyport",
			help: "Name of the endpoint that `sallyport deploy runpod` creates, and by which it finds the endpoint again."},
		{key: "deploy.runpod.image", value: text(&d.Image), defaults: "none",
			help: "Image of the workers, made from `deploy/runpod/Dockerfile` and pushed to a registry that RunPod can read."},
		{key: "deploy.runpod.gpu", value: list(&d.GPUs, word, "RunPod's pools, such as `AMPERE_16`"), defaults: "`AMPERE_16`, `AMPERE_24`, `ADA_24`",
			help: "GPU pools that workers may come from, in order of preference. Empty (`none`) with `deploy.runpod.cpu`."},
		{key: "deploy.runpod.gpuCount", value: integer(&d.GPUCount, 1, 16), initial: "1",
			help: "GPUs of each worker."},
		{key: "deploy.runpod.cpu", value: matching(&d.CPU, word, "RunPod's name for a kind of CPU, such as `cpu3c`"), defaults: "none",
			help: "Kind of CPU for workers without a GPU."},
		{key: "deploy.runpod.vcpus", value: integer(&d.VCPUs, 2, 128), initial: "2",
			help: "Virtual CPUs of each worker without a GPU."},
		{key: "deploy.runpod.disk", value: integer(&d.Disk, 1, 2000), initial: "20",
			help: "Disk of each worker, in GB."},
		{key: "deploy.runpod.minWorkers", value: integer(&d.MinWorkers, 0, 100), initial: "1",
			help: "Workers that always run and always cost money."},
		{key: "deploy.runpod.maxWorkers", value: integer(&d.MaxWorkers, 1, 100), initial: "3",
			help: "Maximum number of workers at a time."},
		{key: "deploy.runpod.idleTimeout", value: duration(&d.Idle, time.Second, time.Hour), initial: "5m",
			help: "How long a worker without a job is kept."},
		{key: "deploy.runpod.timeout", value: duration(&d.Timeout, 5*time.Second, 7*day), initial: "10m",
			help: "How long RunPod lets a job run that does not set a limit."},
		{key: "deploy.runpod.queueDelay", value: duration(&d.QueueDelay, 500*time.Millisecond, time.Hour), initial: "4s",
			help: "How long a job waits before another worker is started."},
		{key: "deploy.runpod.flashboot", value: choice(&d.FlashBoot, "off", "flashboot", "priority_flashboot"), initial: "flashboot",
			help: "RunPod's FlashBoot: start workers from a saved state."},
		{key: "deploy.runpod.registry", value: matching(&d.Registry, word, "the ID of credentials"), defaults: "none",
			help: "RunPod's ID of the credentials for the image's registry."},
		{key: "deploy.runpod.dataCenters", value: list(&d.DataCenters, word, "RunPod's data centers, such as `EU-RO-1`"), defaults: "any",
			help: "Data centers that workers may be in."},
		{key: "deploy.runpod.wait", value: duration(&d.Wait, time.Second, day), initial: "15m",
			help: "How long to wait for a worker to be ready."},
		{key: "deploy.runpod.url", value: matching(&d.URL, isServiceURL, "an https address, or an http address of this machine"), initial: "https://api.runpod.io",
			help: "Address of RunPod's REST API."},
	}
}
