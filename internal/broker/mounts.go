package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
)

// Folders are those of the host that the user's settings show to sessions.
type Folders interface {
	// Now returns the folders that a new session sees, and what its first result says
	// of those that it does not see because they are gone. It is fast.
	Now() (mounts []sandbox.Mount, notes []string, err error)
	// Again returns why a suspended session may not go on with a folder that it saw.
	Again(m sandbox.Mount) error
}

// noFolders are the settings' folders where there are none.
type noFolders struct{}

func (noFolders) Now() ([]sandbox.Mount, []string, error) { return nil, nil, nil }
func (noFolders) Again(sandbox.Mount) error               { return nil }

// withFolders returns the template of the request's session with the folders that the
// session sees: those that it began with, or for a new one those of the settings and
// of the request.
func (b *Broker) withFolders(req *Request, t *session.Template, made session.Making) (*session.Template, *Result) {
	by := sandbox.ByClient
	if req.Shown {
		by = sandbox.ByPerson
	}
	req.Mounts = slices.Clone(req.Mounts)
	for i := range req.Mounts {
		req.Mounts[i].By = by
	}
	req.notes = nil
	if t == made.Template {
		return t, b.lacks(req, t.Mounts)
	}
	var mounts []sandbox.Mount
	var refused *Result
	switch {
	case made.Template != nil:
		mounts = made.Template.Mounts
		refused = b.lacks(req, mounts)
	case made.Suspended:
		mounts = made.Folders
		if refused = b.again(req, t, mounts); refused == nil {
			refused = b.lacks(req, mounts)
		}
	default:
		mounts, refused = b.fresh(req, t, made.Folders)
	}
	if refused != nil {
		return t, refused
	}
	return t.WithMounts(mounts), nil
}

// WithFolders returns a template with the folders that a new session of it sees.
func (b *Broker) WithFolders(t *session.Template) (*session.Template, error) {
	t, refused := b.withFolders(&Request{}, t, session.Making{})
	if refused != nil {
		return nil, errors.New(refused.Error)
	}
	return t, nil
}

// fresh returns the folders of a new session, or of one whose state is lost: it saw
// some, and keeps what a person named for it.
func (b *Broker) fresh(req *Request, t *session.Template, saw []sandbox.Mount) ([]sandbox.Mount, *Result) {
	now, notes, err := b.config.Folders.Now()
	if err != nil {
		return nil, failure(err)
	}
	req.notes = notes
	mounts := slices.Concat(t.Mounts, now)
	named := slices.Clone(req.Mounts)
	if why := b.showsNone(t.Engine, named); why != "" {
		named = nil
		if req.client.first(req.client.rootless, req.key()) {
			req.notes = append(req.notes, "the client's roots are not visible: "+why)
		}
	}
	for _, m := range saw {
		there := func(other sandbox.Mount) bool { return other.Target == m.Target }
		if m.By == sandbox.ByPerson && !slices.ContainsFunc(req.Mounts, there) && b.config.Folders.Again(m) == nil {
			named = append(named, m)
		}
	}
	for _, m := range named {
		if slices.ContainsFunc(mounts, m.Shows) {
			continue
		}
		if m.By == sandbox.ByPerson { // whose word is newer than that of the settings
			mounts = slices.DeleteFunc(mounts, func(other sandbox.Mount) bool { return other.Target == m.Target && other.By == "" })
		}
		err := sandbox.CheckMounts(append(slices.Clone(mounts), m))
		if err == nil {
			err = b.config.Folders.Again(m) // who named it has checked it, and may be another process
		}
		switch {
		case err == nil:
			mounts = append(mounts, m)
		case m.By == sandbox.ByPerson:
			return nil, invalid(err.Error())
		default:
			req.notes = append(req.notes, "a root of the client is not visible: "+err.Error())
		}
	}
	return mounts, nil
}

// showsNone returns why an engine cannot show the roots of a client; empty: it can, or
// there are none. What a person named is an error of the engine instead.
func (b *Broker) showsNone(engine sandbox.Engine, named []sandbox.Mount) string {
	if len(named) == 0 || named[0].By != sandbox.ByClient {
		return ""
	}
	report, err := b.probe(context.Background(), engine)
	if err != nil {
		return "" // whoever runs code gets the error
	}
	return report.NoFolders
}

// again refuses a suspended session that saw folders which it may not see now. Its
// state stays. A note says which folders of the settings it does not see.
func (b *Broker) again(req *Request, t *session.Template, saw []sandbox.Mount) *Result {
	key := req.key()
	for _, m := range saw {
		if slices.ContainsFunc(t.Mounts, m.Shows) {
			continue
		}
		if i := slices.IndexFunc(req.Mounts, m.Shows); i >= 0 {
			m = req.Mounts[i] // whoever names it now, the settings need not
		}
		if err := b.config.Folders.Again(m); err != nil {
			return invalid(fmt.Sprintf("Session %s was suspended with the folder %s: %v. Or name another session, or forget this one's state ('sallyport sessions reset %s')", key.Name, m.Target, err, key.Name))
		}
	}
	now, _, err := b.config.Folders.Now()
	if err != nil {
		return failure(err)
	}
	var added []string
	for _, m := range now {
		if !slices.ContainsFunc(saw, m.Shows) {
			added = append(added, m.Target)
		}
	}
	if len(added) > 0 {
		req.notes = append(req.notes, fmt.Sprintf("the session began without %s and does not see it: another session does, or this one after 'sallyport sessions reset %s', which forgets its variables", strings.Join(added, ", "), key.Name))
	}
	return nil
}

// lacks is the answer to a request that names folders which its session, which has
// begun, does not see. Those that a client names are left out: a note says so once.
func (b *Broker) lacks(req *Request, sees []sandbox.Mount) *Result {
	var roots []string
	for _, m := range req.Mounts {
		switch {
		case slices.ContainsFunc(sees, m.Shows):
		case m.By == sandbox.ByClient:
			roots = append(roots, m.Target)
		default:
			has := "sees no folder"
			if len(sees) > 0 {
				has = "sees " + strings.Join(folders(sees), ", ")
			}
			name := req.key().Name
			return invalid(fmt.Sprintf("Session %s %s, and not %s: a session keeps the folders that it began with. Name another --session, or begin this one anew: sallyport sessions reset %s", name, has, m.String(), name))
		}
	}
	if len(roots) > 0 && req.client.first(req.client.rootless, req.key()) {
		req.notes = append(req.notes, "the session began without the client's roots "+strings.Join(roots, ", ")+" and does not see them: another session does")
	}
	return nil
}
