package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// style is an SGR escape sequence's parameter.
type style string

const (
	bold  style = "1"
	faint style = "2"
	red   style = "31"
	green style = "32"
)

// printer writes lines for a terminal. It is safe for concurrent use.
type printer struct {
	w      io.Writer  // immutable
	colour bool       // immutable
	width  func() int // immutable; columns of the terminal, 0 if there is none

	mu struct {
		sync.Mutex
		live bool // the cursor is in a line that may be redrawn
	}
}

// newPrinter returns a printer that uses colours, and redraws lines, where w is
// a terminal. The environment variable NO_COLOR turns colours off.
func newPrinter(w io.Writer) *printer {
	p := &printer{w: w, width: func() int { return 0 }}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return p
	}
	p.colour = wantColour(os.Getenv("NO_COLOR"))
	p.width = func() int {
		columns, _, err := term.GetSize(int(f.Fd()))
		if err != nil || columns <= 0 {
			return 80
		}
		return columns
	}
	return p
}

// wantColour reports whether a terminal gets colours: any non-empty value of NO_COLOR
// turns them off.
func wantColour(noColour string) bool { return noColour == "" }

func (p *printer) terminal() bool { return p.width() > 0 }

// paint returns text in a style, if there are colours.
func (p *printer) paint(s style, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// linef writes a line.
func (p *printer) linef(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLiveLocked()
	p.writeLocked(fmt.Sprintf(format, args...) + "\n")
}

// status writes a line that the next one replaces on a terminal.
func (p *printer) status(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	columns := p.width()
	if columns == 0 {
		p.writeLocked(text + "\n")
		return
	}
	if runes := []rune(text); len(runes) >= columns {
		text = string(runes[:columns-1])
	}
	p.writeLocked("\r\x1b[K" + text)
	p.mu.live = true
}

// endLiveLocked ends the status line, which stays visible.
func (p *printer) endLiveLocked() {
	if p.mu.live {
		p.writeLocked("\n")
		p.mu.live = false
	}
}

// writeLocked ignores errors: a closed output is not read any more.
func (p *printer) writeLocked(text string) { _, _ = io.WriteString(p.w, text) }

// indent puts a margin before each line.
func indent(margin, text string) string {
	return margin + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+margin)
}
