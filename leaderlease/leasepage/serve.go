package leasepage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

var (
	//go:embed page/page.html
	frame string
	//go:embed page/page.css
	style string
	//go:embed page/model.js
	modelScript string
	//go:embed page/draw.js
	drawScript string
	//go:embed page/page.js
	pageScript string

	script = modelScript + drawScript + pageScript

	// policy is the page's Content-Security-Policy: it runs the embedded scripts only, and
	// connects to the member that served it only.
	policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'",
		digest(script), digest(style))
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Write writes the page as one HTML file. The page shows pic or, if pic is nil, follows the
// pictures at lease/events of the server that it was loaded from.
func Write(w io.Writer, pic *Picture) error {
	data, err := json.Marshal(pic) // escapes <, so no name ends the script element
	if err != nil {
		return fmt.Errorf("leasepage: %w", err)
	}
	_, err = strings.NewReplacer(
		"{{policy}}", policy, "{{style}}", style, "{{script}}", script, "{{picture}}", string(data),
	).WriteString(w, frame)
	return err
}

// ServePage serves the page. Its path ends in /lease, since the page follows the pictures that
// [Live.ServeEvents] serves at lease/events beside it.
func ServePage(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	if err := Write(&b, nil); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for name, value := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy + "; frame-ancestors 'none'",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	} {
		w.Header().Set(name, value)
	}
	_, _ = w.Write(b.Bytes()) // fails if the browser has disconnected
}

// writeTimeout bounds the write of one picture. A page that reads slower is disconnected.
const writeTimeout = 10 * time.Second

// ServeEvents serves pictures as server-sent events until the page disconnects, reads too
// slowly, or the member stops. It refuses pages of other origins, since each open page costs
// the members work and only maxViewers pages can be open.
func (l *Live) ServeEvents(w http.ResponseWriter, r *http.Request) {
	post := *r
	post.Method = http.MethodPost // the check lets each GET pass
	if err := http.NewCrossOriginProtection().Check(&post); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	viewer, leave := l.join()
	if viewer == nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d pages of leases are open, the most that this member serves; close one and reload", maxViewers), http.StatusServiceUnavailable)
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	for {
		select {
		case picture, open := <-viewer.pictures:
			if !open || out.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "data: %s\n\n", picture); err != nil || out.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-l.cfg.Stopping:
			return
		}
	}
}
