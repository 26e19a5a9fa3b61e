package etcdapi

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

const (
	// metadataDelivery is how the gateway says which request over HTTP one to the API
	// is for. Its value cannot be guessed, so that no client has one to give.
	metadataDelivery = "x-kvnode-delivery"
	// gatewayTimes is how much memory a reply over the gateway takes, in its encoded
	// size: it is received, decoded, made JSON with its values in base64, and copied
	// by each of them (measured: 850 MB for 100 MB).
	gatewayTimes = 8
)

// deliveries are the requests over HTTP that are under way, by what metadataDelivery
// says. The room of their replies is given back when they end.
type deliveries struct{ byID sync.Map }

// delivery is one of them.
type delivery struct {
	mu   sync.Mutex
	room *room
	over bool
}

// deliveryKey is the context's key of metadataDelivery's value.
type deliveryKey struct{}

// serve serves h, and gives back what its replies take when it has returned.
func (all *deliveries) serve(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, d := rand.Text(), new(delivery)
		all.byID.Store(id, d)
		defer func() {
			all.byID.Delete(id)
			d.end(w)
		}()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), deliveryKey{}, id)))
	})
}

// annotate tells the API.
func (*deliveries) annotate(ctx context.Context, _ *http.Request) metadata.MD {
	id, _ := ctx.Value(deliveryKey{}).(string)
	return metadata.Pairs(metadataDelivery, id)
}

// of returns the delivery that a request to the API is for, nil if it is none. The
// gateway's word comes after what its client may have sent under that name.
func (all *deliveries) of(ctx context.Context) *delivery {
	ids := metadata.ValueFromIncomingContext(ctx, metadataDelivery)
	if len(ids) == 0 {
		return nil
	}
	return all.get(ids[len(ids)-1])
}

func (all *deliveries) get(id string) *delivery {
	found, _ := all.byID.Load(id)
	d, _ := found.(*delivery)
	return d
}

// reserve finds room for a reply of that size.
func (d *delivery) reserve(ctx context.Context, b *replies, size int64) error {
	r, err := b.reserve(ctx, size, gatewayTimes)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over || d.room != nil { // there is one reply, so that this is for nobody
		r.release()
		return nil
	}
	d.room = r
	return nil
}

// hurry ends the connection of a client that does not take its reply in time.
func (all *deliveries) hurry(ctx context.Context, w http.ResponseWriter) {
	id, _ := ctx.Value(deliveryKey{}).(string)
	d := all.get(id)
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.room != nil {
		// An error means that there is no connection, as in tests.
		_ = http.NewResponseController(w).SetWriteDeadline(d.room.until)
	}
}

func (d *delivery) end(w http.ResponseWriter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if d.room != nil {
		d.room.release()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the next request has its own
	}
}
