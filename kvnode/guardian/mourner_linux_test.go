package guardian

import (
	"encoding/hex"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

func helloOf(id uint64) transport.Hello { return transport.Hello{ClusterID: 0xc1, From: id} }

// death is a process of a member that has died, by its ID in hexadecimal digits.
type death struct {
	member  uint64
	process string
}

// mourner is member 2, which hears of deaths.
type mourner struct {
	transport.Handler
	died chan death
}

func (*mourner) Admit(transport.Hello) error { return nil }
func (m *mourner) Died(peer uint64, process transport.ProcessID) {
	m.died <- death{peer, hex.EncodeToString(process[:])}
}
func (*mourner) Connected(uint64, transport.Hello) {}
