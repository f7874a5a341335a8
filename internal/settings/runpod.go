package settings

import (
	"net"
	"net/url"
	slashpath "path"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// RunPod configures the batch service `runpod`.
type RunPod struct {
	Key                 string // the key, or where to read it: file:/PATH, keyring:NAME
	Endpoint            string
	URL                 string
	AcceptUnknownWorker bool
	MaxExecutionTime    time.Duration
}

// Tools configures tools that agents get in addition to run_python.
type Tools struct {
	RunPod bool
}

var runpodEndpoint = lazyregexp.New(`\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\z`)

func declareRunPod(r *RunPod, t *Tools) []*setting {
	return []*setting{
		{key: "runpod.key", value: secret(&r.Key),
			legacy: "RUNPOD_API_KEY", defaults: "none",
			help: "API key of your RunPod account. It is never shown, and only sent to `runpod.url`."},
		{key: "runpod.endpoint", value: matching(&r.Endpoint, runpodEndpoint().MatchString, "an endpoint's ID, such as 4m7x2k9q"),
			legacy: "RUNPOD_ENDPOINT_ID", defaults: "none",
			help: "The serverless endpoint that runs code; `sallyport deploy runpod` creates one."},
		{key: "runpod.url", value: matching(&r.URL, isServiceURL, "an https address, or an http address of this machine"), initial: "https://api.runpod.ai/v2",
			help: "Address of RunPod's job API, without the endpoint."},
		{key: "runpod.acceptUnknownWorker", value: boolean(&r.AcceptUnknownWorker), initial: "false",
			help: "Also send code to an endpoint whose worker does not report how it isolates code and which limits it enforces. `policy.batchServices` is then not checked."},
		{key: "runpod.maxExecutionTime", value: duration(&r.MaxExecutionTime, time.Second, 7*24*time.Hour),
			legacy: "MAX_EXECUTION_TIME", initial: "30s",
			help: "How long the code of one `execute_python_code` call may run; waiting for a worker is not counted."},
		{key: "tools.runpod", value: boolean(&t.RunPod), initial: "false",
			help: "Offer agents the tools of the first RunPod server, `execute_python_code` and `check_runpod_status`, in addition to `run_python`. `batch.services` must name `runpod`, too."},
	}
}

// isDocumentURL reports whether a string is what
// https://www.ietf.org/archive/id/draft-ietf-oauth-client-id-metadata-document-00.html,
// section 3, allows as a client's identifier.
func isDocumentURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.Fragment == "" && strings.Trim(u.Path, "/") != "" &&
		slashpath.Clean(u.Path) == u.Path
}

// isServiceURL reports whether a key may be sent to this URL.
func isServiceURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}
