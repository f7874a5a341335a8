package runpodtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// isREST tells the second segment of REST v2's paths from an endpoint's ID.
func isREST(segment string) bool {
	switch segment {
	case "serverless", "templates", "catalog":
		return true
	}
	return false
}

// containerSpec are the fields that templates and endpoints share.
type containerSpec struct {
	Image    *string           `json:"image,omitempty"`
	Args     *string           `json:"args,omitempty"`
	Disk     *int              `json:"disk,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Ports    []string          `json:"ports,omitempty"`
	Registry *string           `json:"registry,omitempty"`
}

type templateSpec struct {
	containerSpec
	Name                *string         `json:"name"`
	Category            *string         `json:"category,omitempty"`
	Mounts              json.RawMessage `json:"mounts,omitempty"`
	Public              *bool           `json:"public,omitempty"`
	Serverless          *bool           `json:"serverless,omitempty"`
	StartSSH            *bool           `json:"startSsh,omitempty"`
	StartJupyter        *bool           `json:"startJupyter,omitempty"`
	AllowedCUDAVersions []string        `json:"allowedCudaVersions,omitempty"`
}

type template struct {
	id   string
	spec templateSpec
}

type gpuSpec struct {
	Pools               []string `json:"pools,omitempty"`
	ExcludedTypes       []string `json:"excludedTypes,omitempty"`
	Count               *int     `json:"count,omitempty"`
	AllowedCUDAVersions []string `json:"allowedCudaVersions,omitempty"`
	MinCUDAVersion      *string  `json:"minCudaVersion,omitempty"`
}

type scalingSpec struct {
	Type         string   `json:"type"`
	QueueDelay   *float64 `json:"queueDelay,omitempty"`
	RequestCount *int     `json:"requestCount,omitempty"`
}

type workersSpec struct {
	Min         *int `json:"min,omitempty"`
	Max         *int `json:"max,omitempty"`
	IdleTimeout *int `json:"idleTimeout,omitempty"`
}

type cpuSpec struct {
	ID        string `json:"id"`
	VCPUCount int    `json:"vcpuCount"`
}

type endpointSpec struct {
	containerSpec
	Name           *string      `json:"name,omitempty"`
	Type           *string      `json:"type,omitempty"`
	Scaling        *scalingSpec `json:"scaling,omitempty"`
	GPU            *gpuSpec     `json:"gpu,omitempty"`
	CPU            []cpuSpec    `json:"cpu,omitempty"`
	DataCenterIDs  []string     `json:"dataCenterIds,omitempty"`
	FlashBoot      *string      `json:"flashboot,omitempty"`
	NetworkVolumes []string     `json:"networkVolumes,omitempty"`
	TemplateID     *string      `json:"templateId,omitempty"`
	Timeout        *int64       `json:"timeout,omitempty"`
	Workers        *workersSpec `json:"workers,omitempty"`

	created time.Time
	booted  time.Time // zero: no fleet of its own
	version int
}

func (e *endpointSpec) withoutFleet() *endpointSpec {
	if e == nil {
		return nil
	}
	c := *e
	c.booted = time.Time{}
	return &c
}

// booted are the workers of an endpoint that was made through REST: its
// minimum, at least one, which never take a job.
func (s *Server) booted(ep *endpoint) (list []WorkerRow) {
	if ep.spec == nil || ep.spec.booted.IsZero() {
		return nil
	}
	status := "INITIALIZING"
	if !s.clock.Now().Before(ep.spec.booted) {
		if status = s.opts.BootStatus; status == "" {
			status = "IDLE"
		}
	}
	n := 1
	if w := ep.spec.Workers; w != nil {
		if w.Min != nil {
			n = max(1, *w.Min)
		}
		if w.Max != nil {
			n = min(n, *w.Max)
		}
	}
	for i := range n {
		dc, v := "EU-RO-1", ep.spec.version
		if len(ep.spec.DataCenterIDs) > 0 {
			dc = ep.spec.DataCenterIDs[0]
		}
		list = append(list, WorkerRow{ID: fmt.Sprintf("%s-w%d", ep.id, i), Status: status, DataCenterID: &dc, Version: &v, Image: s.image(ep.spec)})
	}
	return list
}

func (s *Server) image(e *endpointSpec) *string {
	if e.TemplateID != nil && s.templates[*e.TemplateID] != nil {
		return s.templates[*e.TemplateID].spec.Image
	}
	return e.Image
}

// problem is RFC 9457.
func problem(status int, title, detail string, errors ...string) reply {
	m := map[string]any{"title": title, "status": status, "detail": detail}
	if len(errors) > 0 {
		m["errors"] = errors
	}
	a := answer(status, m)
	a.header["Content-Type"] = "application/problem+json"
	return a
}

func notFound(what string) reply { return problem(404, "Not Found", what+" not found") }

func invalid(errors []string) reply {
	return problem(422, "Unprocessable Entity", "The request body is invalid.", errors...)
}

// strict decodes a request and names what the schema does not know, which is
// stricter than the service may be.
func strict(body []byte, v any) *reply {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if !json.Valid(body) {
			a := problem(400, "Bad Request", "The request body is not JSON.")
			return &a
		}
		a := invalid([]string{err.Error()})
		return &a
	}
	return nil
}

// rest serves REST v2.
func (s *Server) rest(r *request) reply {
	auth := r.Header.Get("Authorization")
	if auth != "Bearer "+s.opts.Key {
		return problem(401, "Unauthorized", "A valid API key is needed.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick()
	a := r.args
	one := len(a) == 2
	a0 := a[0]
	switch {
	case a0 == "catalog" && len(a) >= 2 && r.Method == "GET":
		return catalog(a[1:])
	case a0 == "templates" && len(a) == 1 && r.Method == "GET":
		list := []map[string]any{}
		for _, id := range slices.Sorted(maps.Keys(s.templates)) {
			list = append(list, s.templates[id].describe())
		}
		return answer(200, map[string]any{"templates": list})
	case a0 == "templates" && len(a) == 1 && r.Method == "POST":
		return s.saveTemplate(r, nil)
	case a0 == "templates" && one:
		t := s.templates[a[1]]
		switch {
		case t == nil:
			return notFound("template")
		case r.Method == "GET":
			return answer(200, t.describe())
		case r.Method == "PATCH":
			return s.saveTemplate(r, t)
		case r.Method == "DELETE":
			for _, ep := range s.endpoints {
				if ep.spec != nil && ep.spec.TemplateID != nil && *ep.spec.TemplateID == t.id {
					return problem(400, "Bad Request", "The template is in use by endpoint "+ep.id+".")
				}
			}
			delete(s.templates, t.id)
			return empty(204)
		}
	case a0 == "serverless" && len(a) == 1 && r.Method == "GET":
		list := []map[string]any{}
		for _, id := range slices.Sorted(maps.Keys(s.endpoints)) {
			if ep := s.endpoints[id]; ep.spec != nil {
				list = append(list, s.describeEndpoint(r, ep))
			}
		}
		return answer(200, map[string]any{"endpoints": list})
	case a0 == "serverless" && len(a) == 1 && r.Method == "POST":
		return s.saveEndpoint(r, nil)
	case a0 == "serverless" && len(a) >= 2:
		ep := s.endpoints[a[1]]
		switch {
		case ep == nil:
			return notFound("endpoint")
		case len(a) == 3 && a[2] == "workers" && r.Method == "GET":
			m := map[string]any{"workers": append([]WorkerRow{}, s.crew(ep)...), "summary": s.summary(ep), "endpointVersion": nil}
			if ep.spec != nil {
				m["endpointVersion"] = ep.spec.version
			}
			return answer(200, m)
		case len(a) == 5 && a[2] == "workers" && a[4] == "logs" && r.Method == "GET":
			line := "data: {\"message\":\"worker " + a[3] + " started\"}\n\n"
			return reply{200, map[string]string{"Content-Type": "text/event-stream"}, []byte(line)}
		case len(a) > 2:
		case r.Method == "GET" && ep.spec != nil:
			return answer(200, s.describeEndpoint(r, ep))
		case r.Method == "PATCH" && ep.spec != nil:
			return s.saveEndpoint(r, ep)
		case r.Method == "DELETE":
			for _, j := range ep.active {
				s.finish(ep, j, Cancelled)
			}
			delete(s.endpoints, ep.id)
			s.wake()
			return empty(204)
		}
	}
	return problem(404, "Not Found", "There is no "+r.Method+" "+r.URL.Path+".")
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func (c containerSpec) describe() map[string]any {
	return map[string]any{"image": or(c.Image, ""), "args": or(c.Args, ""), "disk": or(c.Disk, 20),
		"env": orMap(c.Env), "ports": append([]string{}, c.Ports...), "registry": c.Registry}
}

func orMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func (c containerSpec) check(errs []string) []string {
	if c.Disk != nil && *c.Disk < 1 {
		errs = append(errs, "disk: must be at least 1")
	}
	if c.Image != nil && strings.TrimSpace(*c.Image) == "" {
		errs = append(errs, "image: must not be empty")
	}
	return errs
}

func (t *template) describe() map[string]any {
	m := t.spec.containerSpec.describe()
	m["id"], m["name"] = t.id, or(t.spec.Name, "")
	m["category"] = or(t.spec.Category, "NVIDIA")
	m["public"], m["serverless"] = or(t.spec.Public, false), or(t.spec.Serverless, false)
	m["startSsh"], m["startJupyter"] = or(t.spec.StartSSH, true), or(t.spec.StartJupyter, true)
	m["allowedCudaVersions"] = append([]string{}, t.spec.AllowedCUDAVersions...)
	m["mounts"] = map[string]any{}
	if t.spec.Mounts != nil {
		m["mounts"] = t.spec.Mounts
	}
	return m
}

func (s *Server) saveTemplate(r *request, t *template) reply {
	spec := templateSpec{}
	if t != nil {
		spec = t.spec
		spec.Env = maps.Clone(spec.Env)
	}
	replaceEnv(r.body, &spec.Env)
	if bad := strict(r.body, &spec); bad != nil {
		return *bad
	}
	errs := spec.check(nil)
	if or(spec.Name, "") == "" {
		errs = append(errs, "name: is required")
	}
	if c := or(spec.Category, "NVIDIA"); c != "CPU" && c != "NVIDIA" && c != "AMD" {
		errs = append(errs, "category: must be CPU, NVIDIA or AMD")
	}
	if len(errs) > 0 {
		return invalid(errs)
	}
	for _, other := range s.templates {
		if other != t && or(other.spec.Name, "") == *spec.Name {
			return problem(400, "Bad Request", "Template name must be unique.")
		}
	}
	if t != nil {
		t.spec = spec
		return answer(200, t.describe())
	}
	s.serial++
	t = &template{fmt.Sprintf("tpl%07d", s.serial), spec}
	s.templates[t.id] = t
	return answer(201, t.describe())
}

// replaceEnv: an env in a PATCH takes the place of the old one.
func replaceEnv(body []byte, env *map[string]string) {
	var has struct {
		Env json.RawMessage `json:"env"`
	}
	if json.Unmarshal(body, &has) == nil && has.Env != nil {
		*env = nil
	}
}

func (s *Server) describeEndpoint(r *request, ep *endpoint) map[string]any {
	e := ep.spec
	m := e.containerSpec.describe()
	if img := s.image(e); img != nil {
		m["image"] = *img
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	u := scheme + "://" + r.Host + "/v2/" + ep.id
	w := or(e.Workers, workersSpec{})
	m["id"], m["name"], m["type"], m["scaling"] = ep.id, *e.Name, *e.Type, e.Scaling
	m["workers"] = map[string]int{"min": or(w.Min, 0), "max": or(w.Max, 3), "idleTimeout": or(w.IdleTimeout, 5)}
	m["dataCenterIds"] = append([]string{}, e.DataCenterIDs...)
	m["networkVolumes"] = append([]string{}, e.NetworkVolumes...)
	m["timeout"], m["flashboot"] = or(e.Timeout, 300000), or(e.FlashBoot, "FLASHBOOT")
	m["createdAt"] = e.created.UTC().Format(time.RFC3339)
	m["gpu"] = nil
	if e.GPU != nil {
		m["gpu"] = map[string]any{"pools": append([]string{}, e.GPU.Pools...), "excludedTypes": append([]string{}, e.GPU.ExcludedTypes...),
			"count": or(e.GPU.Count, 1), "allowedCudaVersions": append([]string{}, e.GPU.AllowedCUDAVersions...), "minCudaVersion": e.GPU.MinCUDAVersion}
	}
	if len(e.CPU) > 0 {
		m["cpu"] = e.CPU
	}
	m["requestUrls"] = map[string]string{"run": u + "/run", "runSync": u + "/runsync", "status": u + "/status/{job_id}",
		"stream": u + "/stream/{job_id}", "cancel": u + "/cancel/{job_id}", "retry": u + "/retry/{job_id}",
		"purgeQueue": u + "/purge-queue", "health": u + "/health"}
	return m
}

func (s *Server) saveEndpoint(r *request, ep *endpoint) reply {
	spec := endpointSpec{}
	if ep != nil {
		spec = *ep.spec
		spec.Env = maps.Clone(spec.Env)
	}
	replaceEnv(r.body, &spec.Env)
	var given struct {
		GPU json.RawMessage `json:"gpu"`
	}
	if json.Unmarshal(r.body, &given) == nil && string(given.GPU) == "null" {
		return invalid([]string{"gpu: must be an object"})
	}
	if bad := strict(r.body, &spec); bad != nil {
		return *bad
	}
	if errs := s.checkEndpoint(spec, ep == nil); len(errs) > 0 {
		return invalid(errs)
	}
	if spec.TemplateID != nil && s.templates[*spec.TemplateID] == nil {
		return notFound("template")
	}
	now := s.clock.Now()
	status := 200
	if ep == nil {
		s.serial++
		ep = newEndpoint(fmt.Sprintf("ep%09d", s.serial))
		s.endpoints[ep.id] = ep
		spec.created = now
		status = 201
	}
	spec.version++
	spec.booted = now.Add(s.opts.Boot)
	ep.spec = &spec
	return answer(status, s.describeEndpoint(r, ep))
}

func (s *Server) checkEndpoint(e endpointSpec, isNew bool) []string {
	errs := e.check(nil)
	if or(e.Name, "") == "" {
		errs = append(errs, "name: is required")
	}
	if t := or(e.Type, ""); t != "QUEUE" && t != "LOAD_BALANCER" {
		errs = append(errs, "type: must be QUEUE or LOAD_BALANCER")
	}
	switch sc := or(e.Scaling, scalingSpec{}); sc.Type {
	case "QUEUE_DELAY":
		if sc.QueueDelay == nil || *sc.QueueDelay < 0.5 {
			errs = append(errs, "scaling.queueDelay: must be at least 0.5")
		}
	case "REQUEST_COUNT":
		if sc.RequestCount == nil || *sc.RequestCount < 1 {
			errs = append(errs, "scaling.requestCount: must be at least 1")
		}
	default:
		errs = append(errs, "scaling.type: must be QUEUE_DELAY or REQUEST_COUNT")
	}
	if isNew && (e.TemplateID == nil) == (e.Image == nil) {
		errs = append(errs, "one of templateId and image is required")
	}
	if (e.GPU == nil) == (len(e.CPU) == 0) {
		errs = append(errs, "one of gpu and cpu is required")
	}
	for _, c := range e.CPU {
		if c.ID == "" || c.VCPUCount < 2 {
			errs = append(errs, "cpu: id is required, and a vcpuCount of at least 2")
		}
	}
	if e.GPU != nil && or(e.GPU.Count, 1) < 1 {
		errs = append(errs, "gpu.count: must be at least 1")
	}
	if f := or(e.FlashBoot, "OFF"); f != "OFF" && f != "FLASHBOOT" && f != "PRIORITY_FLASHBOOT" {
		errs = append(errs, "flashboot: must be OFF, FLASHBOOT or PRIORITY_FLASHBOOT")
	}
	if w := e.Workers; w != nil {
		if or(w.Min, 0) < 0 || or(w.Max, 3) < or(w.Min, 0) {
			errs = append(errs, "workers: min must be at least 0, and max at least min")
		}
		if i := or(w.IdleTimeout, 5); i < 1 || i > 3600 {
			errs = append(errs, "workers.idleTimeout: must be between 1 and 3600")
		}
	}
	return errs
}

// catalog is a small part of what RunPod offers; prices are invented.
func catalog(args []string) reply {
	type object = map[string]any
	lists := map[string][]object{
		"gpus": {
			{"id": "NVIDIA L4", "name": "L4", "pool": "ADA_24", "manufacturer": "NVIDIA", "memory": 24, "secure": true, "community": false,
				"price": object{"secure": 0.43, "community": 0, "serverless": 0.69}, "maxCount": object{"secure": 8, "community": 0}, "availability": "HIGH"},
			{"id": "NVIDIA GeForce RTX 4090", "name": "RTX 4090", "pool": "ADA_24", "manufacturer": "NVIDIA", "memory": 24, "secure": true, "community": true,
				"price": object{"secure": 0.69, "community": 0.34, "serverless": 1.1}, "maxCount": object{"secure": 8, "community": 8}, "availability": "MEDIUM"},
			{"id": "NVIDIA A100 80GB PCIe", "name": "A100 PCIe", "pool": "AMPERE_80", "manufacturer": "NVIDIA", "memory": 80, "secure": true, "community": true,
				"price": object{"secure": 1.64, "community": 1.19, "serverless": 2.72}, "maxCount": object{"secure": 8, "community": 8}, "availability": "LOW"},
			{"id": "NVIDIA H200", "name": "H200 SXM", "pool": "HOPPER_141", "manufacturer": "NVIDIA", "memory": 141, "secure": true, "community": false,
				"price": object{"secure": 3.99, "community": 0, "serverless": 5.58}, "maxCount": object{"secure": 8, "community": 0}, "availability": "NONE"},
		},
		"cpus": {
			{"id": "cpu3c", "name": "Compute-Optimized 3", "group": "cpu3", "vcpu": object{"min": 2, "max": 32}, "ramGbPerVcpu": 2,
				"price": object{"securePerVcpu": 0.03, "serverlessPerVcpu": 0.04}, "availability": "HIGH"},
			{"id": "cpu5c", "name": "Compute-Optimized 5", "group": "cpu5", "vcpu": object{"min": 2, "max": 32}, "ramGbPerVcpu": 2,
				"price": object{"securePerVcpu": 0.035, "serverlessPerVcpu": 0.05}, "availability": "HIGH"},
		},
		"datacenters": {
			{"id": "EU-RO-1", "name": "EU-RO-1", "region": "EUROPE"}, {"id": "US-KS-2", "name": "US-KS-2", "region": "NORTH_AMERICA"},
			{"id": "CA-MTL-1", "name": "CA-MTL-1", "region": "NORTH_AMERICA"},
		},
	}
	list, ok := lists[args[0]]
	names := map[string]string{"gpus": "gpus", "cpus": "cpus", "datacenters": "dataCenters"}
	switch {
	case !ok || len(args) > 2:
		return notFound("catalog")
	case len(args) == 1:
		return answer(200, object{names[args[0]]: list})
	}
	for _, o := range list {
		if o["id"] == args[1] {
			return answer(200, o)
		}
	}
	return notFound("catalog entry")
}
