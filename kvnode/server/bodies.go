package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// bodyTime is how long the body of a request over HTTP may take to arrive. Longer:
// whoever sends a byte now and then has a goroutine and a connection for so long.
// Shorter: the largest request, of 12 MB, does not get through slow lines.
const bodyTime = time.Minute

// streaming are the paths of the gateway whose requests are streams: a body there
// goes on as long as its client has something to ask, and costs what a watch costs.
// They are the names of today; currentPath knows the old ones.
var streaming = map[string]bool{"/v3/watch": true, "/v3/lease/keepalive": true}

// timely serves pages to requests whose bodies arrive in time. It bounds no answer,
// as profiles, locks and watches last.
func timely(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody && !streaming[currentPath(r.URL.Path)] {
			// Package http takes it away when the body is there. An error means that the
			// connection has ended, which whoever reads finds out.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
			timed := *r
			timed.Body = &timedBody{r.Body}
			r = &timed
		}
		pages.ServeHTTP(w, r)
	})
}

// timedBody is a body whose connection has a read deadline until it has arrived.
type timedBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("kvnode: the body of the request has not arrived within %v, which is the limit", bodyTime)
	}
	return n, err
}
