package audit

import (
	"cmp"
	"encoding/json"
	"strconv"
)

// ocsfVersion is the version of the Open Cybersecurity Schema Framework that OCSF
// follows.
const ocsfVersion = "1.8.0"

// OCSF returns a record as an event of the Open Cybersecurity Schema Framework.
// Actions, questions about them and executions are of the class API Activity, the
// others of Application Lifecycle. What the schema has no place for is in unmapped.
func OCSF(line []byte, r *Record, version string) ([]byte, error) {
	type object = map[string]any
	success := (&Entry{Record: r}).Result()
	status, name := 1, "Success"
	if success == Denied || success == Failed || r.Failure != "" {
		status, name = 2, "Failure"
	}
	severity, word := 1, "Informational"
	switch {
	case r.Type == Broken:
		severity, word = 4, "High"
	case r.Type == Lost || success == Denied:
		severity, word = 3, "Medium"
	}
	product := object{"name": "Sallyport", "vendor_name": "Sallyport", "version": version}
	e := object{
		"category_uid": 6, "category_name": "Application Activity",
		"time": r.Time.UnixMilli(), "severity_id": severity, "severity": word,
		"status_id": status, "status": name, "message": r.Title(),
		"metadata": object{
			"version": ocsfVersion, "product": product, "uid": strconv.FormatUint(r.Seq, 10), "sequence": r.Seq,
			"log_name": "audit", "correlation_uid": r.Execution,
		},
		"unmapped": object{"sallyport": json.RawMessage(line)},
	}
	if detail := cmp.Or(r.Reason, r.Failure, r.Error, r.Cause); detail != "" {
		e["status_detail"] = detail
	}
	if r.TookMs > 0 {
		e["duration"] = int64(r.TookMs)
	}
	class := func(uid int, name string, activity int, activityName string) {
		e["class_uid"], e["class_name"] = uid, name
		e["activity_id"], e["activity_name"], e["type_uid"] = activity, activityName, uid*100+activity
	}
	switch r.Type {
	case Decision, Outcome, Question, Answer, Began, Ended:
		// The schema's activities are create, read, update and delete; which of them a
		// call is, only its server knows.
		class(6003, "API Activity", 99, r.Type)
		api := object{"operation": cmp.Or(r.Action, "run_code"), "request": object{"uid": cmp.Or(r.Call, r.Question, r.Execution, strconv.FormatUint(r.Seq, 10))}}
		if r.Server != "" {
			api["service"] = object{"name": r.Server}
		}
		e["api"] = api
		actor := object{"user": object{"name": r.Owner, "type_id": 1, "type": "User"}}
		if r.Client != "" {
			actor["app_name"] = r.Client
		}
		if r.Session != "" {
			actor["session"] = object{"uid": r.Session}
		}
		if r.Allowed != nil {
			decision := "deny"
			if *r.Allowed {
				decision = "allow"
			}
			authorization := object{"decision": decision}
			if r.Rule != "" {
				authorization["policy"] = object{"name": r.Rule}
			}
			actor["authorizations"] = []any{authorization}
		}
		e["actor"] = actor
		e["src_endpoint"] = object{"name": "sandbox"}
		if r.Item != "" {
			e["resources"] = []any{object{"name": r.Item, "type": "MCP " + r.Action}}
		}
	default:
		app := object{"name": "Sallyport", "vendor_name": "Sallyport"}
		if r.Server != "" {
			app["name"] = r.Server
		}
		e["app"] = app
		switch r.To {
		case "started", "resumed":
			class(6002, "Application Lifecycle", 3, "Start")
		case "stopped", "suspended", "died", "lost", "forgotten":
			class(6002, "Application Lifecycle", 4, "Stop")
		default:
			class(6002, "Application Lifecycle", 99, r.Type)
		}
	}
	return json.Marshal(e)
}
