package faults

import (
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Only what is wrong is told, in order, and with its cause.
func TestIf(t *testing.T) {
	var bad List
	bad.If(false, "right %d", 1)
	bad.If(true, "wrong %d", 2)
	bad.If(true, "wrong, too: %w", io.EOF)
	if err := errors.Join(bad...); err.Error() != "wrong 2\nwrong, too: EOF" || !errors.Is(err, io.EOF) {
		t.Errorf("the list = %v, want the second and the third, with EOF", err)
	}
}
