package leasepage

import (
	"bytes"
	"net/http"
	"time"
)

// readTime is for how long a page may not read before it is dropped.
const readTime = 10 * time.Second

// ServePage serves the page.
func ServePage(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	if err := Write(&b, nil); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for name, value := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": Policy + "; frame-ancestors 'none'",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	} {
		w.Header().Set(name, value)
	}
	_, _ = w.Write(b.Bytes()) // a browser that has gone does not read it
}

// ServeEvents serves pictures as server-sent events, until the member stops, or the page goes
// or does not read any more.
func (l *Live) ServeEvents(w http.ResponseWriter, r *http.Request) {
	// It only reads, but it makes members work, and places are few: a page of anybody
	// else could take them all.
	asked := *r
	asked.Method = http.MethodPost
	if err := http.NewCrossOriginProtection().Check(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	me, leave := l.join()
	if me == nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "enough pages are open", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	for {
		var picture []byte
		var more bool
		select {
		case picture, more = <-me.pictures:
		case <-r.Context().Done():
		case <-l.cfg.Stopping:
		}
		if !more {
			return
		}
		err := out.SetWriteDeadline(time.Now().Add(readTime))
		for _, part := range [][]byte{[]byte("data: "), picture, []byte("\n\n")} {
			if err == nil {
				_, err = w.Write(part)
			}
		}
		if err != nil || out.Flush() != nil {
			return
		}
	}
}
