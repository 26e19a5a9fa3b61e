// The texts of the page, and the handlers of keys and pointers.
const $ = (id) => document.getElementById(id);
const behind = 600; // ms that a live page is behind, so that the events of all members have arrived
let paused = true, follows = false, dirty = true, told = "";
let clock = { now: 0, at: 0 }, lastFrame = 0, drag = null, shownFlags = "";

const liveHead = () => clock.now + (performance.now() - clock.at) - behind;

function say(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

// tell updates the number and the sentences beside it for the instant t.
function tell(t) {
  const v = validAt(t), certain = v.least === v.most;
  say("what", certain && v.most === 1 ? "valid leader lease" : "valid leader leases");
  say("count", model.lanes.length === 0 ? "–" : certain ? String(v.most) : `${v.least}–${v.most}`);
  const holder = v.holders[0];
  $("count").style.color = v.most > 1 && v.least > 1 ? paint.bad : holder ? colour(holder.index) : paint.ink;
  say("when", view.hover !== null ? "at the pointer" : model.live && !paused ? `about ${lasting(behind)} ago` : `at ${moment(t, 1)}`);
  say("holder", holder ? held(holder, t) : v.may.length ? `not known: ${v.may.map((l) => l.name).join(" or ")} may hold one` : missing(t));
  const missed = v.unknown.map((l) => l.name);
  say("unknown", missed.length ? `unknown: ${missed.join(", ")} ${missed.length > 1 ? "are" : "is"} not heard` : certain ? "" : "as far as clocks of different members can be compared");
}

const held = ({ lane, lease }, t) => `${lane.name} holds it in term ${lease.term}: ${readsFor(lane, lease, t)}${lease.reads ? `, margin ${lasting(lease.margin)}` : ""}`;

// readsFor says how long reads are allowed after t without a further renewal.
const readsFor = (lane, lease, t) => (lease.reads ? `reads for ${lasting(usableAt(lane, lease, t) - t)} more` : "reads without a limit, as the only voter");

// missing says why no member holds a lease.
function missing(t) {
  let newest = null, by = null;
  for (const lane of model.lanes) {
    for (const l of lane.leases) if (l.from <= t && (!newest || l.term >= newest.term)) [newest, by] = [l, lane];
  }
  if (!newest) return "no member has held one yet";
  if (endless(newest)) return `nothing is known of ${by.name} for ${lasting(t - newest.end)}, which held it in term ${newest.term} as the only voter`;
  if (t < newest.known) return `${by.name} has asked for one in term ${newest.term}`;
  if (t < newest.end) return `${by.name} is in the margin for ${lasting(usableAt(by, newest, t) + newest.margin - t)} more: no reads`;
  return `that of ${by.name} ${newest.why ? `was given up (${newest.why})` : "has run out"} ${lasting(t - newest.end)} before`;
}

// hint shows the numbers at the pointer.
function hint(event) {
  const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
  const row = Math.floor((py - axisHeight) / rowHeight), lane = model.lanes[row];
  view.hover = px >= gutter && lane ? timeAt(px) : null;
  $("tip").hidden = view.hover === null;
  dirty = true;
  if (view.hover === null) return;
  $("tip").replaceChildren(...numbers(lane, view.hover).map((line) => {
    const div = document.createElement("div");
    div.textContent = line;
    return div;
  }));
  const room = $("tip").offsetWidth + 24;
  $("tip").style.left = `${canvas.offsetLeft + (px + room > width ? Math.max(0, px - room + 8) : px + 16)}px`;
  $("tip").style.top = `${canvas.offsetTop + py + 18}px`;
}

function numbers(lane, t) {
  const near = (view.span / (width - gutter)) * 8, all = [`${lane.name} at ${moment(t, view.span / 1e4)}`];
  const l = spanAt(lane.leases, t), p = spanAt(lane.promises, t), h = holdAt(lane, t);
  for (const f of lane.flags) if (Math.abs(f.at - t) < near) all.push(`${moment(f.at, 1)}: ${f.text}`);
  if (l) {
    all.push(`lease of term ${l.term}, ${t < l.known ? "asked for" : t < l.usable ? readsFor(lane, l, t) : "in the margin"}`);
    if (!endless(l)) all.push(`with all renewals it ends ${lasting(l.end - t)} later${l.after ? ` ± ${lasting(l.after)}` : ""}${l.why ? `, given up: ${l.why}` : ""}`);
    const r = renewalAt(lane, t);
    if (r) all.push(`renewed by a round sent ${lasting(t - r.sent)} before, in ${lasting(r.renewed - r.sent)}`);
  }
  if (p) all.push(`has promised ${nameOf(p.to)} not to vote for another member; with all renewals the promise ends ${lasting(p.end - t)} later`);
  const reads = readsAt(lane, t);
  if (reads) all.push(`reads in 0.1 s: ${paths.map(([name], i) => reads[i + 1] && `${reads[i + 1]} ${name}`).filter(Boolean).join(", ")}`);
  if (h) all.push(`restart hold for ${lasting(h[1] - t)} more`);
  if (!heardAt(lane, t)) all.push("not heard");
  return all.slice(0, 9);
}

const nameOf = (id) => model.lanes[indexOf(id)]?.name ?? id;

// story lists the flags, the newest last.
function story() {
  const all = model.lanes.flatMap((lane, i) => lane.flags.map((f) => ({ lane, i, ...f }))).sort((a, b) => a.at - b.at).slice(-300);
  const key = `${all.length} ${all.at(-1)?.at}`;
  if (key === shownFlags) return;
  shownFlags = key;
  const box = $("story"), atEnd = box.scrollTop + box.clientHeight > box.scrollHeight - 30;
  box.replaceChildren(...all.map((f) => {
    const li = document.createElement("li"), when = document.createElement("b"), member = document.createElement("em");
    when.textContent = moment(f.at, 1);
    member.textContent = `${signs[f.kind] || "•"} ${f.lane.name}`;
    member.style.color = colour(f.i);
    li.append(when, member, f.text);
    li.addEventListener("click", () => look(f.at - 300, 1500, f.at));
    return li;
  }));
  if (atEnd && model.live) box.scrollTop = box.scrollHeight;
}

// look shows span ms from an instant on, and stops at head if that is given.
function look(from, span, head) {
  view.span = Math.min(Math.max(span, 1), Math.max(history, (model.to - model.from) * 1.1));
  view.from = from;
  follows = false;
  if (head !== undefined) {
    view.head = head;
    pause(true);
  }
  dirty = true;
}

function zoom(factor, around = view.head >= view.from && view.head <= view.from + view.span ? view.head : view.from + view.span / 2) {
  const span = Math.min(Math.max(view.span * factor, 1), Math.max(history, (model.to - model.from) * 1.1)), sticks = follows;
  look(around - (around - view.from) * (span / view.span), span);
  follows = sticks;
}

function move(part) {
  look(view.from + part * view.span, view.span);
}

function whole() {
  const pad = (model.to - model.from) * 0.02 + 1;
  look(model.from - pad, model.to - model.from + 2 * pad);
}

function pause(stop) {
  paused = stop;
  follows = follows || !stop;
  if (!stop && !model.live && view.head >= model.to) view.head = model.from;
  say("pause", paused ? (model.live ? "resume" : "play") : "pause");
  dirty = true;
}

const keys = { " ": () => pause(!paused), "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), 0: whole };
addEventListener("keydown", (e) => {
  if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey || e.key === " " && e.target.tagName === "BUTTON") return;
  keys[e.key]();
  e.preventDefault();
});
for (const [id, key] of Object.entries({ pause: " ", back: "ArrowLeft", forth: "ArrowRight", out: "-", in: "+", all: 0 })) $(id).addEventListener("click", keys[key]);
canvas.addEventListener("wheel", (e) => {
  if (Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey) move((e.deltaX || e.deltaY) / width);
  else zoom(Math.exp(Math.max(-60, Math.min(60, e.deltaY)) / 200), timeAt(e.clientX - canvas.getBoundingClientRect().left));
  e.preventDefault();
}, { passive: false });
canvas.addEventListener("pointerdown", (e) => { drag = { at: e.clientX, from: view.from }; });
addEventListener("pointerup", () => { drag = null; });
canvas.addEventListener("pointermove", (e) => {
  if (drag && Math.abs(e.clientX - drag.at) > 3) look(drag.from - ((e.clientX - drag.at) / (width - gutter)) * view.span, view.span);
  hint(e);
});
canvas.addEventListener("pointerleave", () => { view.hover = null; $("tip").hidden = true; dirty = true; });
addEventListener("resize", () => { dirty = true; });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { dress(); shownFlags = ""; story(); dirty = true; });

function frame(now) {
  requestAnimationFrame(frame);
  if (!paused && model.live) view.head = liveHead();
  else if (!paused) view.head = Math.min(model.to, view.head + (now - lastFrame) * Math.min(1, view.span / 8e3));
  lastFrame = now;
  if (!paused && follows && model.live) view.from = view.head - view.span * 0.88;
  else if (!paused && follows && (view.head > view.from + view.span * 0.9 || view.head < view.from)) view.from = view.head - view.span * 0.1;
  if (!paused && !model.live && view.head >= model.to) pause(true);
  if (paused && !dirty) return;
  dirty = false;
  draw();
  tell(view.hover ?? view.head);
}

function showSource(mode) {
  $("source").className = model.refused ? "bad" : "";
  say("mode", model.refused ? "REFUSED" : mode);
  say("verdict", model.refused || model.verdict);
}

// listen follows the pictures of the member that served the page.
function listen() {
  model.live = true;
  const source = new EventSource("lease/events");
  source.addEventListener("message", (e) => {
    const p = JSON.parse(e.data), first = model.lanes.length === 0;
    accept(p);
    clock = { now: p.now, at: performance.now() };
    if (first) { follows = true; pause(false); }
    showSource("live");
    story();
    dirty = true;
  });
  source.addEventListener("error", () => { showSource("not connected"); });
  showSource("connecting");
}

dress();
const recorded = JSON.parse($("picture").textContent);
if (recorded) {
  accept(recorded);
  showSource("recorded");
  story();
  whole();
  const last = model.lanes.flatMap((l) => l.leases).sort((a, b) => a.known - b.known).at(-1);
  view.head = last ? (last.known + last.usable) / 2 : model.from;
  pause(true);
} else listen();
requestAnimationFrame(frame);
