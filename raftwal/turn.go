package raftwal

// turn is a mutex that may be held while the disk is slow. Who waits for it is durably
// blocked, so that a slow disk takes virtual time in a bubble of testing/synctest; who
// waits for a sync.Mutex is not, and time stands still.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// Lock waits for its turn.
func (t turn) Lock() { t <- struct{}{} }

// Unlock lets the next one have it.
func (t turn) Unlock() { <-t }
