package leasepage

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// The page, in the files that a reader may want to change.
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
)

// Policy is the page's Content-Security-Policy: nothing runs but what is embedded here,
// and nothing is asked but the member that has served it.
var Policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'",
	digest(script), digest(style))

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Write writes the page in one piece. It shows pic, or without one listens to the
// member that has served it.
func Write(w io.Writer, pic *Picture) error {
	data, err := json.Marshal(pic) // which writes < as an escape, so nothing in it ends the element
	if err != nil {
		return fmt.Errorf("leasepage: %w", err)
	}
	_, err = strings.NewReplacer(
		"{{policy}}", Policy, "{{style}}", style, "{{script}}", script, "{{picture}}", string(data),
	).WriteString(w, frame)
	return err
}
