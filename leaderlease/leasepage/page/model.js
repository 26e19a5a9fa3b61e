"use strict";
// The model: the lanes of all pictures so far, and what is true at an instant. Times are milliseconds.
const model = { lanes: [], from: 0, to: 0, live: false, proved: false, verdict: "", refused: "" };

// history is how long a live page keeps what it was sent.
const history = 10 * 60e3;

// accept adds a picture to the model. A live picture that is not full begins at its from: what
// the model has of the time before is kept, and spans that continue are joined.
function accept(picture) {
  const known = new Map(model.lanes.map((l) => [l.id, l]));
  for (const lane of picture.lanes) {
    const old = known.get(lane.id);
    if (old && !picture.full) join(lane, old, picture.from, picture.from - history);
  }
  model.from = picture.full || !model.lanes.length ? picture.from : Math.max(model.from, picture.from - history);
  const seen = new Set(picture.lanes.map((l) => l.id));
  const gone = picture.full ? [] : model.lanes.filter((l) => !seen.has(l.id)).map((l) => ({ ...l, gone: true })); // it was removed
  model.lanes = picture.lanes.concat(gone).sort((a, b) => a.name.length - b.name.length || (a.name < b.name ? -1 : 1));
  model.to = picture.to;
  model.proved = picture.proved === true;
  model.verdict = picture.verdict || "";
  model.refused = picture.refused || "";
}

// join puts what old has of the time before cut in front of what lane has.
function join(lane, old, cut, forget) {
  const slack = 400; // more than lies between two renewals
  for (const list of ["leases", "promises", "heard"]) {
    const end = list === "heard" ? "to" : "end";
    const before = old[list].filter((s) => s.from < cut && s[end] > forget);
    const rest = [];
    for (const s of before) {
      const next = lane[list].find((n) => n.term === s.term && n.to === (list === "promises" ? s.to : n.to) && n.reads === s.reads &&
        n.from - slack < s[end] && s[end] - slack < n[end]);
      if (!next) rest.push(s);
      else if (s.from < next.from) Object.assign(next, { from: s.from }, s.known ? { known: s.known, before: s.before, released: s.released } : {});
    }
    lane[list] = rest.concat(lane[list]);
  }
  lane.flags = old.flags.filter((f) => f.at < cut && f.at > forget).concat(lane.flags.filter((f) => f.at >= cut));
  lane.reads = old.reads.filter((r) => r[0] < cut && r[0] > forget).concat(lane.reads.filter((r) => r[0] >= cut));
  lane.holds = old.holds.filter((h) => h[0] < cut).concat(lane.holds.filter((h) => h[0] >= cut));
  const kept = old.renewals;
  let n = 0;
  while (n < kept.length && kept[n + 1] < cut) n += 2;
  lane.renewals = kept.slice(0, n).concat(lane.renewals.filter((_, i, all) => all[i | 1] >= cut));
}

// validAt returns how many leases are valid at t: at least and at most, since the clocks of
// members can be compared with an error only. A lease that is known to follow another one
// excludes it. It also returns which members were not heard, and which of them may hold a lease.
function validAt(t) {
  const all = [];
  model.lanes.forEach((lane, index) => {
    for (const l of lane.leases) {
      if (l.known - l.before <= t && allows(l, t, l.after)) all.push({ lane, index, lease: l });
    }
  });
  all.sort((a, b) => b.lease.term - a.lease.term);
  let most = 0, least = 0;
  for (const { lease } of all) {
    most++;
    if (!lease.loose && lease.known + lease.before <= t && allows(lease, t, -lease.after)) least++;
    if (model.proved || lease.released) break;
  }
  const holders = all.filter(({ lease }) => lease.known <= t && allows(lease, t, 0));
  const unknown = model.lanes.filter((l) => !l.gone && !heardAt(l, t)), may = unknown.filter((l) => (model.proved ? mayGoOn(l, t) : mayHold(l, t)));
  return { least, most: most + (may.length ? 1 : 0), holders, unknown, may };
}

// endless says whether a lease is that of a sole voter. Such a lease is not renewed, and its
// usable is only up to when it is known: the last time that its holder was heard.
const endless = (lease) => !lease.reads && !lease.why;

// allows says whether a lease allows reads at t, if it ends later by fuzz.
const allows = (lease, t, fuzz) => t < lease.usable + fuzz || endless(lease) && t === lease.usable + fuzz;

// mayGoOn says whether a member held, when it was last heard, a lease that is not renewed.
function mayGoOn(lane, t) {
  const last = lane.leases.findLast((l) => l.from <= t);
  return last !== undefined && endless(last);
}

// mayHold says whether a member that is not heard may hold a lease at t: a majority may have
// promised it one. A voter that is heard without such a promise has made none.
function mayHold(lane, t) {
  const voters = model.lanes.filter((l) => !l.gone && !l.learner);
  const free = voters.filter((l) => heardAt(l, t) && !l.promises.some((p) => p.to === lane.id && p.from <= t && t < p.end));
  return !lane.learner && voters.length - free.length > voters.length / 2;
}

const heardAt = (lane, t) => lane.heard.some((h) => h.from <= t && t <= h.to);
const readsAt = (lane, t) => lane.reads.find((r) => r[0] - 100 < t && t <= r[0]);
const spanAt = (list, t) => list.findLast((s) => s.from <= t && t < s.end);
const holdAt = (lane, t) => lane.holds.find((h) => h[0] <= t && t < h[1]);

// renewalAt returns the newest renewal that was complete at t.
function renewalAt(lane, t) {
  let i = firstAfter(lane.renewals, t) - 2;
  while (i >= 0 && lane.renewals[i + 1] > t) i -= 2;
  return i < 0 ? null : { sent: lane.renewals[i], renewed: lane.renewals[i + 1] };
}

// usableAt returns until when a lease allowed reads, as its holder knew at t. The lease itself
// is drawn with all its renewals, also those after t.
const usableAt = (lane, lease, t) => (lease.reads ? (renewalAt(lane, t)?.sent ?? lease.from) + lease.reads : Infinity);

// firstAfter returns the index of the first pair that begins after t.
function firstAfter(pairs, t) {
  let low = 0, high = pairs.length / 2;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (pairs[2 * mid] <= t) low = mid + 1; else high = mid;
  }
  return 2 * low;
}

// lasting formats a duration, with about three digits.
function lasting(ms) {
  const size = Math.abs(ms);
  if (size >= 60e3) return `${Math.floor(ms / 60e3)} min ${Math.round((ms % 60e3) / 1e3)} s`;
  if (size >= 1e3) return `${(ms / 1e3).toFixed(size >= 10e3 ? 1 : 2)} s`;
  return `${ms.toFixed(size >= 100 ? 0 : size >= 1 ? 1 : 3)} ms`;
}

// moment formats an instant, with the resolution of step.
function moment(ms, step) {
  const digits = Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(step))));
  const s = (ms - model.from) / 1e3, minutes = Math.trunc(s / 60);
  if (Math.abs(s) < 60 || digits > 1) return `${s.toFixed(digits)} s`;
  return `${minutes}:${(Math.abs(s) % 60).toFixed(digits).padStart(digits ? 3 + digits : 2, "0")}`;
}
