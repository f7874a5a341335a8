package kaggle

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The calls, as paths below /v1/. Fields that equal their default are left out
// on the wire, in both directions.
const (
	callSave       = "kernels.KernelsApiService/SaveKernel"
	callStatus     = "kernels.KernelsApiService/GetKernelSessionStatus"
	callOutput     = "kernels.KernelsApiService/ListKernelSessionOutput"
	callList       = "kernels.KernelsApiService/ListKernels"
	callDelete     = "kernels.KernelsApiService/DeleteKernel"
	callQuota      = "kernels.KernelsApiService/GetAcceleratorQuotaStatistics"
	callIntrospect = "security.OAuthService/IntrospectToken"
	callRefresh    = "users.AccountService/GenerateAccessToken"
)

type saveRequest struct {
	Slug                   string   `json:"slug"`
	NewTitle               string   `json:"newTitle"`
	Text                   string   `json:"text"`
	Language               string   `json:"language"`
	KernelType             string   `json:"kernelType"`
	DatasetDataSources     []string `json:"datasetDataSources,omitempty"`
	CompetitionDataSources []string `json:"competitionDataSources,omitempty"`
	KernelDataSources      []string `json:"kernelDataSources,omitempty"`
	ModelDataSources       []string `json:"modelDataSources,omitempty"`
	// Sent even if false: the service's own default for internet is true.
	IsPrivate             bool   `json:"isPrivate"`
	EnableGPU             bool   `json:"enableGpu"`
	EnableTPU             bool   `json:"enableTpu"`
	EnableInternet        bool   `json:"enableInternet"`
	SessionTimeoutSeconds int    `json:"sessionTimeoutSeconds"`
	MachineShape          string `json:"machineShape,omitempty"`
}

type saveAnswer struct {
	Ref                       string   `json:"ref"`
	URL                       string   `json:"url"`
	VersionNumber             int      `json:"versionNumber"`
	Error                     string   `json:"error"`
	InvalidDatasetSources     []string `json:"invalidDatasetSources"`
	InvalidCompetitionSources []string `json:"invalidCompetitionSources"`
	InvalidKernelSources      []string `json:"invalidKernelSources"`
	InvalidModelSources       []string `json:"invalidModelSources"`
}

// kernelRequest is what several calls take.
type kernelRequest struct {
	UserName   string `json:"userName"`
	KernelSlug string `json:"kernelSlug"`
	PageSize   int    `json:"pageSize,omitempty"`
	PageToken  string `json:"pageToken,omitempty"`
}

// The states of a session. An answer without one is statusQueued, also where
// there is no session at all.
const (
	statusQueued          = "QUEUED"
	statusRunning         = "RUNNING"
	statusComplete        = "COMPLETE"
	statusError           = "ERROR"
	statusCancelRequested = "CANCEL_REQUESTED"
	statusCancelled       = "CANCEL_ACKNOWLEDGED"
	statusNew             = "NEW_SCRIPT"
)

type statusAnswer struct {
	Status         string `json:"status"`
	FailureMessage string `json:"failureMessage"`
}

type outputAnswer struct {
	Files         []outputFile `json:"files"`
	Log           string       `json:"log"`
	NextPageToken string       `json:"nextPageToken"`
}

type outputFile struct {
	URL      string `json:"url"`
	FileName string `json:"fileName"`
}

type listRequest struct {
	Group     string `json:"group"`
	Search    string `json:"search"`
	User      string `json:"user"`
	PageSize  int    `json:"pageSize"`
	PageToken string `json:"pageToken,omitempty"`
}

type listAnswer struct {
	Kernels []struct {
		Ref         string `json:"ref"`
		LastRunTime string `json:"lastRunTime"`
	} `json:"kernels"`
	NextPageToken string `json:"nextPageToken"`
}

type quotaAnswer struct {
	QuotaRefreshTime string        `json:"quotaRefreshTime"`
	GPU              *acceleration `json:"gpuQuota"`
	TPU              *acceleration `json:"tpuQuota"`
}

type acceleration struct {
	TimeUsed         string `json:"timeUsed"`
	TotalTimeAllowed string `json:"totalTimeAllowed"`
}

// String says how much of the week's quota is left.
func (q quotaAnswer) String() string {
	var parts []string
	for _, a := range []struct {
		name string
		*acceleration
	}{{"GPU", q.GPU}, {"TPU", q.TPU}} {
		if a.acceleration == nil {
			continue
		}
		used, all := wireSeconds(a.TimeUsed), wireSeconds(a.TotalTimeAllowed)
		parts = append(parts, fmt.Sprintf("%s: %.1f of %.0f hours used this week", a.name, used.Hours(), all.Hours()))
	}
	if when, err := time.Parse(time.RFC3339Nano, q.QuotaRefreshTime); err == nil && len(parts) > 0 {
		parts = append(parts, "the next week begins "+when.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return strings.Join(parts, "; ")
}

// wireSeconds reads a duration such as "71094.4s"; what is none is zero.
func wireSeconds(text string) time.Duration {
	s, err := strconv.ParseFloat(strings.TrimSuffix(text, "s"), 64)
	if err != nil || s < 0 || s > 1e9 {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}
