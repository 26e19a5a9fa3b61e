package linz

// Final is the state after the last operation, as a linearizable read shows it.
type Final struct {
	Revision int64
	Keys     map[string]Version // absent keys may be left out
}

// Acknowledged returns the writes whose success was told to a client: each must
// be found at its revision for as long as that is not compacted.
func Acknowledged(ops []Op) []Op {
	var acked []Op
	for i := range ops {
		if ops[i].wrote() {
			acked = append(acked, ops[i])
		}
	}
	return acked
}

// checkFinal finds keys whose newest acknowledged write is not what they hold
// in the end, although nothing can have replaced it.
func checkFinal(ops []Op, final Final, rep *Report) {
	newest := make(map[string]*Op)
	deleting := make(map[string]bool) // keys with unknown deletions
	for i := range ops {
		op := &ops[i]
		if old := newest[op.Key]; op.wrote() && (old == nil || op.Revision > old.Revision) {
			newest[op.Key] = op
		}
		if op.Kind == Delete && op.Outcome == Unknown {
			deleting[op.Key] = true
		}
	}
	for key, op := range newest {
		got := final.Keys[key]
		switch {
		case op.Revision > final.Revision:
			rep.addf("missing", key, "final revision is %d: %v", final.Revision, op)
		case got.Mod > op.Revision, got == op.Version():
			// Replaced by a later write, or there.
		case got.Mod == 0 && deleting[key]:
		default:
			rep.addf("missing", key, "finally holds %v: %v", got, op)
		}
	}
}

// withFinal appends a read of each key after everything else, so that the final
// state takes part in the search for an order.
func withFinal(ops []Op, final Final) []Op {
	all := append([]Op(nil), ops...)
	client, end := 0, ops[len(ops)-1].Call
	keys := make(map[string]bool)
	for i := range ops {
		client = max(client, ops[i].Client+1)
		keys[ops[i].Key] = true
		if ops[i].Outcome == OK {
			end = max(end, ops[i].Return)
		}
	}
	for key := range keys {
		all = append(all, Op{
			Client: client, Kind: Get, Key: key, Call: end + 1, Return: end + 2,
			Outcome: OK, Revision: final.Revision, Seen: final.Keys[key],
		})
	}
	return all
}
