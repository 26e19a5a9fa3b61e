package load

import (
	"context"
	"maps"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Trailer is the name under which a server says which path served a read.
const Trailer = "x-lease-read-path"

// Paths counts the reads that each path has served, by the server's own word.
// Any goroutine may use it.
type Paths struct {
	mu struct {
		sync.Mutex
		count map[string]int
	}
}

// Count returns the number of reads served by path.
func (p *Paths) Count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.count[path]
}

// All returns the numbers of all paths.
func (p *Paths) All() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.mu.count)
}

func (p *Paths) add(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.count == nil {
		p.mu.count = make(map[string]int)
	}
	p.mu.count[path]++
}

// DialOption makes a client count its reads.
func (p *Paths) DialOption() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if method != "/etcdserverpb.KV/Range" {
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		var trailer metadata.MD
		err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Trailer(&trailer))...)
		if values := trailer.Get(Trailer); err == nil && len(values) > 0 {
			p.add(values[0])
			if seen, ok := ctx.Value(pathKey{}).(*string); ok {
				*seen = values[0]
			}
		}
		return err
	})
}

// pathKey finds in a context where a caller wants to have the path of its read.
type pathKey struct{}
