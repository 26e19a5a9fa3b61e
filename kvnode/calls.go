package kvnode

// calls is the way into the loop for whoever wants something of raft: nobody else touches
// what is the loop's, and so it is handed to them there.
type calls struct {
	box[func(*raftLoop)]
	stopping <-chan struct{} // immutable
}

// do runs f in the loop and waits for its end. It returns false if the node stops first;
// f may then run all the same, so it must not use what its caller goes on with. Never called
// by the loop itself, which would wait for itself.
func (c *calls) do(f func(*raftLoop)) bool {
	done := make(chan struct{})
	c.put(func(l *raftLoop) { f(l); close(done) })
	select {
	case <-done:
		return true
	case <-c.stopping:
		return false
	}
}
