package demo

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestOutputThatIsNoTerminalHasNoColour(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range []*printer{newPrinter(&bytes.Buffer{}), newPrinter(f)} {
		if got := p.paint(red, "text"); got != "text" || p.terminal() {
			t.Errorf("paint = %q on terminal %v, want plain text on none", got, p.terminal())
		}
	}
}

func TestColoursCanBeTurnedOff(t *testing.T) {
	if !wantColour("") || wantColour("1") || wantColour("0") {
		t.Errorf("wantColour of nothing, 1, 0 = %v, %v, %v, want true, false, false", wantColour(""), wantColour("1"), wantColour("0"))
	}
	p := &printer{colour: true}
	if got := p.paint(red, "text"); got != "\x1b[31mtext\x1b[0m" {
		t.Errorf("paint = %q, want it red", got)
	}
}

func TestStatusLineIsRedrawnInPlaceAndCutToTheTerminal(t *testing.T) {
	var out bytes.Buffer
	p := &printer{w: &out, width: func() int { return 8 }}
	p.status("leader ä one")
	p.status("short")
	p.linef("n2 ended")
	p.status("x")
	if got, want := out.String(), "\r\x1b[Kleader \r\x1b[Kshort\nn2 ended\n\r\x1b[Kx"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

func TestStatusLinesFollowEachOtherElsewhere(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&out)
	p.status("one")
	p.linef("n2 ended")
	p.status("two")
	if got, want := out.String(), "one\nn2 ended\ntwo\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}
