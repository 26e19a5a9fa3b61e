// Package storesim lets whole-cluster simulations run the real store: its
// Machine is a store.Store over a backend in memory, which loses what was not
// committed whenever its process dies, and fails now and then.
//
//	sim.Run(t, sim.Config{
//		Seed: seed, NewMachine: storesim.NewMachine(storesim.Config{Seed: seed}), Compact: 4 * time.Second,
//	})
//
// Besides what leasetest checks, a Machine checks the store against itself, and
// panics if it finds something wrong:
//
//   - a checkpoint is of the index that the log was asked about, and is there
//     after the next crash
//   - events come once for each revision, in order
//   - point reads, and ranges as of the same revision, agree
//   - a snapshot that is damaged is refused and changes nothing
package storesim
