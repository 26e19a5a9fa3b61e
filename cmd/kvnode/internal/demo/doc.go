// Package demo is kvnode demo: three real members as child processes, to look at
// or to watch in a scripted run.
//
//	root.AddCommand(demo.Command())
//
// # What the story promises
//
// Each line with a mark is a claim, and its mark is the result of a check that
// was made from outside, through sockets and signals, as any client or operator
// could. Lines without a mark inform and may vary. The story succeeds only if
// every scene was played, has claimed something, and all claims held.
//
// No claim is about how fast something is: a slow machine makes the story long,
// not false.
package demo
