package load

import "context"

// Roam is a Target whose clients begin at one member and go on to the next one
// whenever an operation fails.
type Roam struct {
	Members []Client
	First   int
}

// Client implements Target.
func (r Roam) Client(int) Client { return &roamer{members: r.Members, at: r.First} }

type roamer struct {
	members []Client
	at      int
}

func (r *roamer) moveOn(err error) {
	if err != nil {
		r.at = (r.at + 1) % len(r.members)
	}
}

// Read implements Client.
func (r *roamer) Read(ctx context.Context, key int) (Seen, error) {
	seen, err := r.members[r.at].Read(ctx, key)
	r.moveOn(err)
	return seen, err
}

// Write implements Client.
func (r *roamer) Write(ctx context.Context, key int) (uint64, error) {
	version, err := r.members[r.at].Write(ctx, key)
	r.moveOn(err)
	return version, err
}
