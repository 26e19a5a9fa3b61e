package benbjohnson_test

import (
	"fmt"
	"time"

	bbj "github.com/benbjohnson/clock"

	"github.com/leaderlease/go/leaderlease/clock/benbjohnson"
)

// A program that injects a benbjohnson clock sets leaderlease's Config.Clock to
// the same one.
func ExampleFrom() {
	mock := bbj.NewMock()
	clock := benbjohnson.From(mock)
	before := clock.Now()
	mock.Add(7 * time.Second)
	fmt.Println(clock.Now().Sub(before))

	// Output:
	// 7s
}
