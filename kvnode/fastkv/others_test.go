package fastkv

import (
	"testing"
	"time"
)

// Where processors are busy with something else, requests do not wait for that, but for one each
// noRun, which finds out.
func TestOthersDoNotRunWhereThatTakesLong(t *testing.T) {
	var o others
	now := time.Now()
	may := func(want bool, when string) {
		t.Helper()
		if got := o.mayRun(now); got != want {
			t.Errorf("%s others may run: %v, want %v", when, got, want)
		}
	}
	may(true, "at first")
	o.ran(now, now.Add(longRun))
	may(true, "after a short run")
	o.ran(now, now.Add(longRun+1))
	now = now.Add(longRun + 1)
	may(false, "after a long run")
	now = now.Add(noRun - 1)
	may(false, "a moment before the pause is over")
	now = now.Add(1)
	may(true, "after the pause")
}
