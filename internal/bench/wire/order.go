package wire

// Disorder counts what no watcher may see. All of it is 0 for a right server.
type Disorder struct {
	Missing    int64
	Duplicate  int64
	OutOfOrder int64
}

// Sum returns how many events were wrong.
func (d Disorder) Sum() int64 { return d.Missing + d.Duplicate + d.OutOfOrder }

func (d *Disorder) add(other Disorder) {
	d.Missing += other.Missing
	d.Duplicate += other.Duplicate
	d.OutOfOrder += other.OutOfOrder
}

// order audits the events of one watcher. Puts are numbered from 1 on, each
// begins after the one before has ended.
type order struct {
	last int64 // the greatest number seen
	rev  int64 // of the newest event
	// lacking are the numbers below last that were not seen.
	lacking map[int64]struct{}
	Disorder
}

// see takes an event and reports whether it is new. failed says of which puts
// nobody knows whether they took effect: such an event may come late or never.
func (o *order) see(number, rev int64, failed func(number int64) bool) bool {
	fresh := true
	switch _, late := o.lacking[number]; {
	case number > o.last:
		for n := o.last + 1; n < number; n++ {
			o.lack(n)
		}
		o.last = number
		if rev <= o.rev {
			o.OutOfOrder++
		}
	case late:
		delete(o.lacking, number)
		if !failed(number) || rev <= o.rev {
			o.OutOfOrder++
		}
	default:
		o.Duplicate++
		fresh = false
	}
	o.rev = max(o.rev, rev)
	return fresh
}

func (o *order) lack(number int64) {
	if o.lacking == nil {
		o.lacking = make(map[int64]struct{})
	}
	o.lacking[number] = struct{}{}
}

// end counts what has not come of the puts up to a number.
func (o *order) end(upTo int64, failed func(number int64) bool) {
	for n := o.last + 1; n <= upTo; n++ {
		o.lack(n)
	}
	for n := range o.lacking {
		if !failed(n) {
			o.Missing++
		}
	}
}
