// Package worker is Sallyport at the other end of RunPod's queue. A [Worker]
// speaks the protocol of RunPod's serverless workers: it takes jobs, says that
// it lives, streams what the code writes, stops what is to be stopped, and posts
// results until somebody has them. An [Executor] runs one job in a sandbox; what
// client and worker say to each other in it is package job. A [Server] is the
// job API on this machine, to try a worker without RunPod.
//
// Everything that comes from outside is hostile: the service's answers and the
// job's input are bounded and checked, and nothing of them becomes a path. The
// worker's own token goes into one header and nowhere else.
package worker
