// Package worker is Sallyport at the other end of RunPod's queue. A [Worker]
// speaks the protocol of RunPod's serverless workers: it takes jobs, reports
// that it is alive, streams the code's output, stops jobs on request, and posts
// results until they are accepted. An [Executor] runs one job in a sandbox;
// package job defines what client and worker exchange. A [Server] is the job
// API on this machine, to try a worker without RunPod.
//
// Everything from outside is hostile: the service's responses and the job's
// input are bounded and checked, and no part of them becomes a path. The
// worker's own token goes into one header and nowhere else.
package worker
