// Package runpodtest is a RunPod of our own for tests: the job API that
// clients speak, the API that workers speak, and as much of REST v2 as
// endpoints and templates need, with RunPod's rate limits, retention and
// payload limits, a clock that a test can turn, and faults that it can order.
// The real Python client and worker are tested against it too. Where RunPod's
// behaviour is not published, the comments say what was chosen.
package runpodtest
