package rawnode

import (
	"testing"
	"time"
)

func TestEachArmAnswers(t *testing.T) {
	arms, err := StartArms(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer arms.Close()
	for _, a := range arms.List {
		n, elapsed, err := a.Measure(2 * time.Millisecond)
		if err != nil || n == 0 || elapsed < time.Millisecond {
			t.Errorf("%s: Measure() = %d in %v, %v, want some in a millisecond at least", a.Name, n, elapsed, err)
		}
	}
}
