package core

// Processes have names where somebody hears of their deaths (V8), and none elsewhere. A process
// that has died is one whose node has begun another.

// process is the ID of a node's process, by its number from 1 on. Number 0 is an unknown process.
func process(id, number uint8) ProcessID {
	if number == 0 {
		return ProcessID{}
	}
	return ProcessID{id, number}
}

// named is the number of node i's process.
func (s *stage) named(i int) uint8 {
	if s.b.budget.obituaries == 0 {
		return 0
	}
	return s.actors[i].run + 1
}

// bury tells node i of the newest process of node j that has died. It may campaign then, soon,
// late or more than once, by the letter that is returned.
func (s *stage) bury(i, j int) (letter, bool) {
	v, number := &s.actors[i], s.actors[j].run
	if s.b.flaw == livingBuried {
		number++
	}
	if i == j || number == 0 || s.left.obituaries == 0 {
		return letter{}, false
	}
	s.left.obituaries--
	bound := v.guard.promise.until > v.now
	rel, void := v.guard.ProcessDied(uint64(j+1), process(uint8(j+1), number))
	switch {
	case bound && void:
		s.reach(goalVoided)
	case bound && v.guard.promise.leader == uint64(j+1):
		s.reach(goalFormer)
	}
	if !void || v.guard.Bound(v.now) {
		return letter{}, true
	}
	return letter{kind: handoverLetter, from: uint8(j + 1), to: uint8(i + 1), term: uint8(rel.Term), at: rel.At}, true
}

// processes packs what names processes. No more die than are packed.
func (p *packer) processes(a *actor) {
	p.put(a.run | (a.guard.promise.process[1]&15)<<4)
	for _, d := range a.guard.dead[:3] {
		p.put(p.id(uint8(d.member)) | (d.process[1]&15)<<4)
	}
}

func (u *unpacker) processes(a *actor) {
	var number uint8
	a.run, number = u.two()
	a.guard.promise.process = process(uint8(a.guard.promise.leader), number)
	for i := range 3 {
		id, number := u.two()
		a.guard.dead[i] = grave{uint64(id), process(id, number)}
	}
}
