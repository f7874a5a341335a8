// Package runpod is the batch service that runs code on a RunPod Serverless
// endpoint. A run is a job, which RunPod gives to one of the endpoint's workers.
//
// A job is submitted once. If the answer is lost, the package searches for the
// job and never sends it again, because it might then run twice. Requests that
// can be repeated are, within RunPod's rate limits.
//
// The worker limits the code, so a job without code first asks the endpoint
// what its worker offers. A worker that does not answer that gets no code
// unless the configuration accepts it. Code for a worker that does answer
// travels in a field that another worker would not find.
package runpod
