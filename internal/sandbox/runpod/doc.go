// Package runpod is the engine that runs code on a RunPod Serverless endpoint.
// It is a batch engine: a run is a job, which RunPod gives to one of the
// endpoint's workers.
//
// A job is submitted once. Where the answer to that was lost, it is looked for
// and never sent again, because it might then run twice. Everything that can
// be asked again is, with RunPod's rates kept.
//
// What limits the code is the worker, so the endpoint is asked once, with a
// job that has no code, what its worker offers. One that does not say is
// refused unless the configuration accepts it. Code for a worker that does say
// travels where another worker would not look for it.
package runpod
