package storetest

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"github.com/leaderlease/go/kvnode/store"
)

// magic begins a snapshot of a Disk. It is no database of bbolt's.
const magic = "kvnode storetest snapshot\n"

// file is what a snapshot holds after its first line and a checksum.
type file struct {
	HasMeta bool
	Meta    []byte
	Keys    []string
	Values  [][]byte
}

func (c *contents) encode() []byte {
	f := file{HasMeta: c.meta != nil, Meta: c.meta}
	for _, key := range slices.Sorted(maps.Keys(c.records)) {
		f.Keys = append(f.Keys, key)
		f.Values = append(f.Values, c.records[key])
	}
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(f); err != nil {
		panic(fmt.Sprintf("storetest: encode a snapshot: %v", err)) // memory does not fail
	}
	return fmt.Appendf(nil, "%s%08x%s", magic, crc32.ChecksumIEEE(body.Bytes()), body.Bytes())
}

func decode(data []byte) (*contents, error) {
	rest, ok := strings.CutPrefix(string(data), magic)
	if !ok {
		return nil, store.ErrForeign
	}
	if len(rest) < 8 || fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(rest[8:]))) != rest[:8] {
		return nil, store.ErrDamaged
	}
	var f file
	if err := gob.NewDecoder(strings.NewReader(rest[8:])).Decode(&f); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrDamaged, err)
	}
	c := &contents{meta: f.Meta, records: map[string][]byte{}}
	if f.HasMeta && c.meta == nil {
		c.meta = []byte{}
	}
	for i, key := range f.Keys {
		c.records[key] = f.Values[i]
	}
	return c, nil
}
