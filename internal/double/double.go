// Package double is double buffering: it hands what a queue holds to its one receiver.
package double

// Take returns all of queue and leaves spare in its place, emptied: a receiver that
// gives back what it has taken before allocates nothing, and what that held is let
// go. The caller holds the queue's lock.
func Take[T any](queue *[]T, spare []T) []T {
	clear(spare)
	taken := *queue
	*queue = spare[:0]
	return taken
}
