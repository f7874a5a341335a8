package kaggle

import (
	"context"
	"errors"
	"strings"
	"time"
)

// maxPages bounds the pages of a listing that are read.
const maxPages = 100

// Sweep implements batch.Service: it removes this installation's scripts whose
// session has ended and that have no record. It cannot end a session that
// runs; a later Sweep removes it.
func (b *Service) Sweep(ctx context.Context, age time.Duration, known func(id string) bool) ([]string, error) {
	user, err := b.client.user(ctx)
	if err != nil {
		return nil, fail("sweep", nil, explain(err))
	}
	request := listRequest{Group: "PROFILE", User: user, Search: strings.TrimSuffix(b.prefix(), "-"), PageSize: 100}
	var stray []string // IDs
	for range maxPages {
		var page listAnswer
		if err := b.client.call(ctx, callList, request, &page); err != nil {
			return nil, fail("sweep", nil, explain(err))
		}
		for _, k := range page.Kernels {
			owner, slug, _ := strings.Cut(k.Ref, "/")
			id, ours := strings.CutPrefix(slug, b.prefix())
			ran, err := time.Parse(time.RFC3339Nano, k.LastRunTime)
			if ours && strings.EqualFold(owner, user) && validName().MatchString(slug) && err == nil && time.Since(ran) > age && !known(id) {
				stray = append(stray, id)
			}
		}
		if page.NextPageToken == "" || page.NextPageToken == request.PageToken {
			break
		}
		request.PageToken = page.NextPageToken
	}
	var gone []string
	var failed error
	for _, id := range stray {
		s, err := b.status(ctx, kernelRequest{UserName: user, KernelSlug: b.slug(id)})
		if err == nil && !ended(s.Status) {
			continue
		}
		if err == nil {
			err = b.remove(ctx, user, b.slug(id))
		}
		switch {
		case err == nil:
			gone = append(gone, id)
		case !absent(err):
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		return gone, fail("sweep", nil, explain(failed))
	}
	return gone, nil
}
