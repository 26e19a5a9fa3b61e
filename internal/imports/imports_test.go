package imports

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

const (
	modulePath = "github.com/leaderlease/go"
	moduleRoot = "../.."
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// All files count, whatever their build constraints say.
func TestCoreIsPure(t *testing.T) {
	files := 0
	err := filepath.WalkDir(filepath.Join(moduleRoot, "leaderlease", "core"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "testdata":
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		case filepath.Ext(path) != ".go":
			t.Errorf("%s: the core is Go alone", path)
			return nil
		}
		files++
		found, err := impurities(path, nil)
		for _, f := range found {
			t.Errorf("%s in the core", f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Error("no file was checked")
	}
}

const pureSource = `package core

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/raft/v3/quorum"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core/internal/arith"
)

type clock struct{ Now func() time.Duration }

var (
	_ = cmp.Compare[int]
	_ = errors.New(strconv.Itoa(-1))
	_ = fmt.Sprintf("%v", math.MaxInt64)
	_ = slices.Sort[[]int]
	_ quorum.JointConfig
	_ pb.Message
	_ = arith.Zero
)

// time.Now in a comment, a go statement in prose and a method called Now are
// nobody's clock.
func end(c clock) time.Duration { return -c.Now() + time.Second }
`

func TestPureSourcePasses(t *testing.T) {
	found, err := impurities("pure.go", pureSource)
	if len(found) > 0 || err != nil {
		t.Errorf("impurities(pure source) = %q, %v, want none", found, err)
	}
}

// Negative control: each rule is broken once, and found once.
func TestEachImpurityIsFound(t *testing.T) {
	tests := []struct {
		name, src, want string
	}{
		{"the clock", `import "time"; var _ = time.Now`, "use of time.Now"},
		{"the clock by another name", `import t "time"; var _ = t.Since`, "use of time.Since"},
		{"the clock in parentheses", `import "time"; var _ = (time.Now)()`, "use of time.Now"},
		{"a timer", `import "time"; var _ time.Timer`, "use of time.Timer"},
		{"a wall-clock instant", `import "time"; type T struct{ at time.Time }`, "use of time.Time"},
		{"names hidden by a dot import", `import . "time"; var _ = Now`, `import of "time" as .`},
		{"a blank import", `import _ "errors"`, `import of "errors" as _`},
		{"a lock", `import "sync"; var _ sync.Mutex`, `import of "sync"`},
		{"an atomic", `import "sync/atomic"; var _ atomic.Bool`, `import of "sync/atomic"`},
		{"the operating system", `import "os"; var _ = os.Exit`, `import of "os"`},
		{"IO", `import "io"; var _ io.Writer`, `import of "io"`},
		{"a logger", `import "log"; var _ = log.Print`, `import of "log"`},
		{"a structured logger", `import "log/slog"; var _ = slog.Info`, `import of "log/slog"`},
		{"a context", `import "context"; var _ context.Context`, `import of "context"`},
		{"randomness", `import "math/rand/v2"; var _ = rand.Int`, `import of "math/rand/v2"`},
		{"unsafe", `import "unsafe"; var _ unsafe.Pointer`, `import of "unsafe"`},
		{"C", `import "C"`, `import of "C"`},
		{"the driver", `import "github.com/leaderlease/go/leaderlease"`, `import of "github.com/leaderlease/go/leaderlease"`},
		{"all of raft", `import "go.etcd.io/raft/v3"`, `import of "go.etcd.io/raft/v3"`},
		{"a package like the core", `import "github.com/leaderlease/go/leaderlease/corea"`, `import of "github.com/leaderlease/go/leaderlease/corea"`},
		{"printing", `import "fmt"; var _ = fmt.Println`, "use of fmt.Println"},
		{"printing without an import", `func f() { println(1) }`, "println writes to standard error"},
		{"a name from elsewhere", "//go:linkname now runtime.nanotime\nfunc now() int64", "go:linkname reaches around the import list"},
		{"a goroutine", `func f() { go f() }`, "go statement"},
		{"a channel", `var c chan int`, "channel type"},
		{"a channel in a parameter", `func f(c <-chan int)`, "channel type"},
		{"a send", `func f(c C) { c <- 1 }`, "channel send"},
		{"a receive", `func f(c C) { <-c }`, "channel receive"},
		{"a select", `func f() { select {} }`, "select statement"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			found, err := impurities("broken.go", "package core\n"+tc.src+"\n")
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != 1 || !strings.HasSuffix(found[0], ": "+tc.want) {
				t.Errorf("impurities(%s) = %q, want %q", tc.src, found, tc.want)
			}
		})
	}
}

func TestSourceThatDoesNotParseIsAnError(t *testing.T) {
	if _, err := impurities("broken.go", "package core\nfunc {"); err == nil {
		t.Error("impurities(broken source) = nil, want an error")
	}
	if _, err := impurities(filepath.Join(t.TempDir(), "none.go"), nil); !os.IsNotExist(err) {
		t.Errorf("impurities(missing file) = %v, want not exist", err)
	}
}
