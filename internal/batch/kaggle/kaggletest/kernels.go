package kaggletest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// kernel is a user's script, with its versions.
type kernel struct {
	id          int
	owner, slug string
	title       string
	request     saveRequest // of the last version
	created     time.Time
	session     *session // of the last version; nil: none
	versions    int
}

// A Kernel describes a kernel of the service, for tests.
type Kernel struct {
	Owner, Slug, Title, Source string
	Private, Internet          bool
	MachineShape               string
	TimeoutSeconds             int
	Datasets                   []string
	Versions                   int
	Status                     string
}

// Kernels returns all kernels, by slug.
func (s *Server) Kernels() []Kernel {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Kernel
	for _, k := range s.kernels {
		out := Kernel{
			Owner: k.owner, Slug: k.slug, Title: k.title, Source: k.request.Text, Private: deref(k.request.IsPrivate), Internet: deref(k.request.EnableInternet),
			MachineShape: k.request.MachineShape, TimeoutSeconds: k.request.SessionTimeoutSeconds, Datasets: k.request.DatasetDataSources, Versions: k.versions,
		}
		if k.session != nil {
			out.Status = k.session.status
		}
		all = append(all, out)
	}
	slices.SortFunc(all, func(a, b Kernel) int { return cmp.Compare(a.Slug, b.Slug) })
	return all
}

// Sessions counts all sessions since the start.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Ghosts counts sessions that go on although their kernel was deleted.
func (s *Server) Ghosts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, x := range s.sessions {
		if x.live() && s.kernels[x.owner+"/"+x.slug] == nil {
			n++
		}
	}
	return n
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

type saveRequest struct {
	ID                     *int     `json:"id"`
	Slug                   string   `json:"slug"`
	NewTitle               string   `json:"newTitle"`
	Text                   string   `json:"text"`
	Language               string   `json:"language"`
	KernelType             string   `json:"kernelType"`
	DatasetDataSources     []string `json:"datasetDataSources"`
	KernelDataSources      []string `json:"kernelDataSources"`
	CompetitionDataSources []string `json:"competitionDataSources"`
	ModelDataSources       []string `json:"modelDataSources"`
	IsPrivate              *bool    `json:"isPrivate"`
	EnableGPU              *bool    `json:"enableGpu"`
	EnableTPU              *bool    `json:"enableTpu"`
	EnableInternet         *bool    `json:"enableInternet"`
	SessionTimeoutSeconds  int      `json:"sessionTimeoutSeconds"`
	KernelExecutionType    string   `json:"kernelExecutionType"`
	MachineShape           string   `json:"machineShape"`
	DockerImage            string   `json:"dockerImage"`
}

func (r *saveRequest) gpu() bool {
	return strings.HasPrefix(r.MachineShape, "Nvidia") || r.MachineShape == "" && deref(r.EnableGPU)
}

func (r *saveRequest) tpu() bool {
	return strings.HasPrefix(r.MachineShape, "Tpu") || r.MachineShape == "" && deref(r.EnableTPU)
}

// retired are accelerators that no longer exist, with what is provided instead.
var retired = map[string]string{
	"NvidiaTeslaP100": "NvidiaTeslaT4", "TpuV38": "TpuV5E8", "Tpu1VmV38": "TpuV5E8", "TpuV232": "", "TpuV2256": "",
}

var (
	notSlug = lazyregexp.New(`[^a-z0-9]+`)
	// KnownDatasets is the form of the data sets that exist here.
	knownDataset = lazyregexp.New(`\A[a-z0-9-]+/[a-z0-9-]+\z`)
)

func slugify(title string) string {
	return strings.Trim(notSlug().ReplaceAllString(strings.ToLower(title), "-"), "-")
}

const maxSessionSeconds = 12 * 60 * 60

func (s *Server) saveKernel(user string, request []byte) (any, error) {
	var in saveRequest
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, refuse(http.StatusBadRequest, "bad request: "+err.Error())
	}
	say := func(problem string) (any, error) { return map[string]any{"error": problem}, nil }
	owner, slug, ok := strings.Cut(in.Slug, "/")
	switch {
	case !ok || owner != user:
		return nil, refuse(http.StatusForbidden, "Permission 'kernels.update' was denied")
	case len(in.NewTitle) > 50: // as the real service answers
		return nil, refuse(http.StatusInternalServerError, "An internal server error occurred")
	case in.NewTitle != "" && len(in.NewTitle) < 5 || len(slug) < 5:
		return say("The title must be at least five characters")
	case in.Language != "python" || in.KernelType != "script" && in.KernelType != "notebook":
		return say("A valid language and kernel type must be specified")
	case in.SessionTimeoutSeconds > maxSessionSeconds:
		return say("The session timeout must be less than the maximum of 12 hours")
	}
	if in.NewTitle != "" {
		slug = slugify(in.NewTitle) // of what the title makes
	}
	var invalid []string
	for _, d := range in.DatasetDataSources {
		if !knownDataset().MatchString(d) || strings.Contains(d, "missing") {
			invalid = append(invalid, d)
		}
	}
	if now, ok := retired[in.MachineShape]; ok {
		in.MachineShape = now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	account := s.opts.Accounts[user]
	run := in.KernelExecutionType != "QUICK_SAVE"
	if run && in.gpu() {
		if n := s.gpuSessions(user); n >= s.opts.GPUSessions {
			return say(fmt.Sprintf("Maximum batch GPU session count of %d reached.", s.opts.GPUSessions))
		}
		if account.GPUUsed >= gpuQuota {
			return say("Maximum weekly GPU quota of 30.00 hours reached")
		}
	}
	if run && in.tpu() && account.TPUUsed >= tpuQuota {
		return say("Maximum weekly TPU quota of 20.00 hours reached")
	}
	k := s.kernels[user+"/"+slug]
	if k == nil {
		k = &kernel{id: s.id(), owner: user, slug: slug, created: time.Now().UTC()}
		s.kernels[user+"/"+slug] = k
	}
	k.title, k.request = cmp.Or(in.NewTitle, slug), in
	k.versions++
	if run {
		k.session = s.startSession(k)
	}
	out := map[string]any{
		"ref": "/code/" + user + "/" + slug, "url": "https://www.kaggle.com/code/" + user + "/" + slug,
		"versionNumber": k.versions, "kernelId": k.id,
	}
	if invalid != nil {
		out["invalidDatasetSources"] = invalid
	}
	return out, nil
}

// gpuSessions counts a user's sessions with a GPU, including queued ones and
// those whose kernel was deleted. The caller holds mu.
func (s *Server) gpuSessions(user string) int {
	n := 0
	for _, x := range s.sessions {
		if x.owner == user && x.gpu && x.live() {
			n++
		}
	}
	return n
}

// about is what requests say of a kernel.
type about struct {
	UserName, KernelSlug, VersionLabel, PageToken string
	PageSize                                      int
}

var label = lazyregexp.New(`\Av[0-9]+\z`)

// find returns the kernel of a request. The caller holds mu.
func (s *Server) find(user string, request []byte) (*kernel, about, error) {
	var in about
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, in, refuse(http.StatusBadRequest, "bad request: "+err.Error())
	}
	if in.VersionLabel != "" && !label().MatchString(in.VersionLabel) {
		return nil, in, refuse(http.StatusNotFound, "no such version")
	}
	k := s.kernels[in.UserName+"/"+in.KernelSlug]
	if k == nil || k.owner != user && deref(k.request.IsPrivate) {
		return nil, in, refuse(http.StatusForbidden, "Permission 'kernels.get' was denied")
	}
	return k, in, nil
}

func (s *Server) sessionStatus(user string, request []byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, _, err := s.find(user, request)
	if err != nil {
		return nil, err
	}
	out := map[string]any{} // a default is left out, and QUEUED is the default
	if x := k.session; x != nil {
		if x.status != queued {
			out["status"] = x.status
		}
		if x.failure != "" {
			out["failureMessage"] = x.failure
		}
	}
	return out, nil
}

// page cuts a list as a request asks.
func page[T any](all []T, in about) ([]T, string) {
	size := in.PageSize
	if size <= 0 || size > 200 {
		size = 20
	}
	from, _ := strconv.Atoi(strings.TrimPrefix(in.PageToken, "at-"))
	from = min(max(from, 0), len(all))
	to := min(from+size, len(all))
	next := ""
	if to < len(all) {
		next = "at-" + strconv.Itoa(to)
	}
	return all[from:to], next
}

func (s *Server) sessionOutput(user string, request []byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, in, err := s.find(user, request)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if k.session == nil || k.session.live() {
		return out, nil
	}
	files, next := page(k.session.names(), in)
	list := []map[string]string{}
	for _, name := range files {
		u := url.URL{Path: "/" + strconv.Itoa(k.session.id) + "/" + name, RawQuery: "signature=" + strconv.Itoa(k.session.id*7)}
		list = append(list, map[string]string{"url": s.storage.URL + u.String(), "fileName": name})
	}
	if len(list) > 0 {
		out["files"] = list
	}
	if next != "" {
		out["nextPageToken"] = next
	}
	out["log"] = k.session.blob()
	return out, nil
}

func (s *Server) listFiles(user string, request []byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, in, err := s.find(user, request)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if k.session == nil || k.session.live() {
		return out, nil
	}
	files, next := page(k.session.names(), in)
	var list []map[string]any
	for _, name := range files {
		list = append(list, map[string]any{"name": name, "size": k.session.size(name), "creationDate": k.session.ended.Format(time.RFC3339)})
	}
	out["files"], out["nextPageToken"] = list, next
	return out, nil
}

func (s *Server) listKernels(user string, request []byte) (any, error) {
	var in struct {
		User, Search, Group, PageToken string
		Page, PageSize                 int
	}
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, refuse(http.StatusBadRequest, "bad request: "+err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*kernel
	for _, k := range s.kernels {
		if in.User != "" && k.owner != in.User || in.Group == "PROFILE" && k.owner != user || k.owner != user && deref(k.request.IsPrivate) {
			continue
		}
		if in.Search != "" && !strings.Contains(k.slug+" "+strings.ToLower(k.title), strings.ToLower(in.Search)) {
			continue
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b *kernel) int { return cmp.Compare(a.id, b.id) })
	size := in.PageSize
	if size <= 0 || size > 100 {
		size = 20
	}
	token := in.PageToken
	if token == "" && in.Page > 1 {
		token = "at-" + strconv.Itoa((in.Page-1)*size)
	}
	part, next := page(all, about{PageSize: size, PageToken: token})
	list := []any{}
	for _, k := range part {
		list = append(list, k.metadata())
	}
	out := map[string]any{}
	if len(list) > 0 {
		out["kernels"] = list
	}
	if next != "" {
		out["nextPageToken"] = next
	}
	return out, nil
}

func (k *kernel) metadata() map[string]any {
	m := map[string]any{
		"id": k.id, "ref": k.owner + "/" + k.slug, "title": k.title, "author": k.owner, "slug": k.slug,
		"lastRunTime": k.created.Format("2006-01-02T15:04:05.000000000Z"), "language": k.request.Language, "kernelType": k.request.KernelType,
		"isPrivate": deref(k.request.IsPrivate), "enableInternet": deref(k.request.EnableInternet), "currentVersionNumber": k.versions,
	}
	if k.request.MachineShape != "" {
		m["machineShape"] = k.request.MachineShape
	}
	return m
}

func (s *Server) getKernel(user string, request []byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, _, err := s.find(user, request)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"metadata": k.metadata(),
		"blob":     map[string]any{"source": k.request.Text, "language": k.request.Language, "kernelType": k.request.KernelType, "slug": k.slug},
	}, nil
}

// deleteKernel removes a kernel. Its session goes on until its end, as a ghost:
// invisible, but still counted.
func (s *Server) deleteKernel(user string, request []byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, _, err := s.find(user, request)
	if err != nil {
		return nil, err
	}
	delete(s.kernels, k.owner+"/"+k.slug)
	s.change()
	return map[string]any{}, nil
}

// cancelSession ends the session with that number. No call returns the number.
func (s *Server) cancelSession(user string, request []byte) (any, error) {
	var in struct{ KernelSessionID int }
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, refuse(http.StatusBadRequest, "bad request: "+err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sessions[in.KernelSessionID]
	if x == nil || x.owner != user {
		return nil, refuse(http.StatusForbidden, "Permission 'kernelSessions.cancel' was denied")
	}
	x.cancelled = true
	x.kill()
	return map[string]any{}, nil
}

func (s *Server) quota(user string, _ []byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.opts.Accounts[user]
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" }
	return map[string]any{
		"quotaRefreshTime": "2026-11-28T00:00:00Z",
		"gpuQuota":         map[string]any{"timeUsed": seconds(a.GPUUsed), "timeReserved": "0s", "totalTimeAllowed": seconds(gpuQuota), "hasEverRun": true},
		"tpuQuota":         map[string]any{"timeUsed": seconds(a.TPUUsed), "timeReserved": "0s", "totalTimeAllowed": seconds(tpuQuota)},
	}, nil
}
