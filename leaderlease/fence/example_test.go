package fence_test

import (
	"errors"
	"fmt"

	"github.com/leaderlease/go/leaderlease/fence"
)

// A holder is paused between the check of its lease and its write. While it
// sleeps, another node is elected and writes. When it wakes up it knows
// nothing of that, but the resource does.
func Example() {
	var gate fence.Gate // the resource's own
	content := ""
	write := func(t fence.Token, s string) error {
		return gate.Do(t, func() error {
			content = s
			return nil
		})
	}

	// Node 1 leads in term 4. It takes its token when its work begins.
	node1 := fence.Token{Term: 4, Index: 120}
	fmt.Println("node 1:", write(node1, "first, by node 1"))

	// It checks its lease again, which is valid, and is paused right here.
	late := func() error { return write(node1, "second, by node 1") }

	// The lease ends. Node 2 is elected in term 5 and takes the work over.
	node2 := fence.Token{Term: 5, Index: 133}
	fmt.Println("node 2:", write(node2, "second, by node 2"))

	// Node 1 wakes up and goes on where it stopped.
	err := late()
	fmt.Println("node 1:", err)
	fmt.Println("must stop:", errors.Is(err, fence.ErrStale))
	fmt.Println("content:", content)

	// Output:
	// node 1: <nil>
	// node 2: <nil>
	// node 1: fence: stale token 4.120: 5.133 was admitted before
	// must stop: true
	// content: second, by node 2
}

// A resource that restarts must not forget which token was the newest.
func ExampleNewGate() {
	gate := fence.NewGate(fence.Token{Term: 5, Index: 133}) // as stored by the earlier run
	fmt.Println(gate.Admit(fence.Token{Term: 4, Index: 120}))
	fmt.Println(gate.Admit(fence.Token{Term: 5, Index: 133}))

	// Output:
	// fence: stale token 4.120: 5.133 was admitted before
	// <nil>
}

// A token travels as text in a header or in JSON.
func ExampleParseToken() {
	t, err := fence.ParseToken("4.120")
	fmt.Println(t.Term, t.Index, err)
	_, err = fence.ParseToken("4")
	fmt.Println(err)

	// Output:
	// 4 120 <nil>
	// fence: malformed token: "4" is not of the form term.index
}
