// The canvas: lanes from top to bottom, time from left to right.
const canvas = document.getElementById("lanes");
const pen = canvas.getContext("2d");
const view = { from: 0, span: 10e3, head: 0, hover: null };
const rowHeight = 96, axisHeight = 24, mapHeight = 34;
let paint = {}, gutter = 90, width = 0;

const x = (t) => gutter + ((t - view.from) / view.span) * (width - gutter);
const timeAt = (px) => view.from + ((px - gutter) / (width - gutter)) * view.span;
const rowTop = (i) => axisHeight + i * rowHeight;
const colour = (i) => paint[`m${i % 7}`];
const indexOf = (id) => model.lanes.findIndex((l) => l.id === id);

// dress reads the colours of the light or dark style.
function dress() {
  const style = getComputedStyle(document.documentElement);
  paint = { hatches: new Map() };
  for (const name of ["ink", "soft", "line", "quiet", "card", "bad", "m0", "m1", "m2", "m3", "m4", "m5", "m6"]) paint[name] = style.getPropertyValue(`--${name}`).trim();
}

// hatch returns a pattern of slanted or upright lines.
function hatch(ink, upright) {
  const key = ink + upright;
  if (!paint.hatches.has(key)) {
    const tile = document.createElement("canvas"), size = 8;
    tile.width = tile.height = size;
    const p = tile.getContext("2d");
    p.strokeStyle = ink;
    p.lineWidth = upright ? 2 : 2.4;
    p.beginPath();
    if (upright) { p.moveTo(2, 0); p.lineTo(2, size); } else for (const d of [-size, 0, size]) { p.moveTo(d - 1, size + 1); p.lineTo(d + size + 1, -1); }
    p.stroke();
    paint.hatches.set(key, pen.createPattern(tile, "repeat"));
  }
  return paint.hatches.get(key);
}

// bar fills from a to b, at least one pixel, and returns its visible part, if there is one.
function bar(a, b, top, height, fill, alpha = 1) {
  const left = Math.max(gutter, x(a)), right = Math.min(width, Math.max(x(b), x(a) + 1));
  if (right <= left || b < a) return false;
  pen.globalAlpha = alpha;
  pen.fillStyle = fill;
  pen.fillRect(left, top, right - left, height);
  pen.globalAlpha = 1;
  return [left, right];
}

function words(text, px, py, ink, align = "left", font = "12px system-ui, sans-serif") {
  pen.font = font;
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillStyle = ink;
  pen.fillText(text, px, py);
}

function draw() {
  const ratio = devicePixelRatio || 1;
  width = canvas.clientWidth;
  gutter = width < 600 ? 72 : 96;
  if (width <= gutter) return; // as in a window that is being resized: there is no axis
  const height = axisHeight + model.lanes.length * rowHeight + mapHeight;
  canvas.style.height = `${height}px`;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  drawAxis(height - mapHeight);
  model.lanes.forEach(drawLane);
  drawMap(height - mapHeight, mapHeight);
  for (const [t, ink] of [[view.head, paint.ink], [view.hover, paint.soft]]) {
    if (t === null || x(t) < gutter) continue;
    pen.fillStyle = ink;
    pen.fillRect(Math.round(x(t)), axisHeight - 6, 1, height - mapHeight - axisHeight + 6);
  }
}

// steps returns the distance between labels of the axis: 1, 2 or 5 times a power of ten, or minutes.
function steps() {
  const least = (view.span / (width - gutter)) * 90;
  for (const minutes of [60e3, 120e3, 300e3, 600e3]) if (least > 20e3 && minutes >= least) return minutes;
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((f) => f * power >= least);
}

function drawAxis(bottom) {
  const step = steps();
  for (let n = Math.ceil((view.from - model.from) / step); ; n++) {
    const t = model.from + n * step;
    if (t > view.from + view.span) break;
    pen.fillStyle = paint.line;
    pen.fillRect(Math.round(x(t)), axisHeight - 5, 1, bottom - axisHeight + 5);
    if (x(t) > gutter + 20) words(moment(t, step), x(t), 10, paint.soft, x(t) > width - 40 ? "right" : "center");
  }
}

function drawLane(lane, i) {
  const top = rowTop(i);
  pen.fillStyle = paint.line;
  pen.fillRect(0, top, width, 1);
  drawQuiet(lane, top);
  for (const h of lane.holds) drawHold(h, top + 27, 30);
  for (const p of lane.promises) bar(p.from, p.end, top + 64, 12, colour(indexOf(p.to)), 0.55);
  for (const l of lane.leases) drawLease(l, top + 27, 30, colour(i));
  drawRenewals(lane, top + 27, 30);
  drawReads(lane, top + 80);
  drawFlags(lane, top + 15, i);
  drawName(lane, top, i);
}

// drawQuiet greys the time for which the member is not heard.
function drawQuiet(lane, top) {
  let known = view.from;
  const end = Math.max(view.head, model.to);
  const grey = (a, b) => {
    const px = bar(a, b, top + 1, rowHeight - 1, paint.quiet);
    if (px && px[1] - px[0] > 70) words("not heard", (px[0] + px[1]) / 2, top + 87, paint.soft, "center");
  };
  for (const h of lane.heard) {
    if (h.from > known) grey(known, h.from);
    known = Math.max(known, h.to);
  }
  if (known < end - (model.live ? 500 : 1)) grey(known, Math.min(end, view.from + view.span));
}

function drawHold(h, top, height) {
  const px = bar(h[0], h[1], top, height, hatch(paint.soft, true), 0.7);
  if (!px) return;
  pen.strokeStyle = paint.soft;
  pen.strokeRect(px[0] + 0.5, top + 0.5, px[1] - px[0] - 1, height - 1);
}

function drawLease(l, top, height, ink) {
  bar(l.from, Math.min(l.known, l.usable), top, height, ink, 0.35);
  const solid = bar(l.known, l.usable, top, height, ink);
  const margin = bar(l.usable, l.end, top, height, hatch(ink, false));
  if (margin) {
    pen.strokeStyle = ink;
    pen.strokeRect(margin[0] + 0.5, top + 0.5, Math.max(0, margin[1] - margin[0] - 1), height - 1);
  }
  for (const [t, fuzz] of [[l.from, l.before], [l.end, l.after]]) {
    if ((fuzz / view.span) * width > 1) bar(t - fuzz, t + fuzz, top - 3, height + 6, ink, 0.18);
  }
  if (solid && solid[1] - solid[0] > 64) words(`term ${l.term}`, solid[0] + 8, top + height / 2, paint.card, "left", "600 13px system-ui, sans-serif");
}

// drawRenewals slants from where a round was sent to where it had renewed the lease.
function drawRenewals(lane, top, height) {
  const from = Math.max(0, firstAfter(lane.renewals, view.from) - 2), to = firstAfter(lane.renewals, view.from + view.span);
  if (to - from < 2 || (2 * (width - gutter)) / (to - from) < 12) return;
  pen.strokeStyle = paint.card;
  pen.globalAlpha = 0.75;
  pen.beginPath();
  for (let i = from; i < to; i += 2) {
    if (x(lane.renewals[i]) < gutter) continue;
    pen.moveTo(x(lane.renewals[i]), top + height);
    pen.lineTo(x(lane.renewals[i + 1]), top + height - 8);
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

// Each path of reads has a row of dots. The size of a dot is the number of digits of its reads.
const paths = [["under the lease", "m2"], ["joined to a renewal", "m0"], ["by a round", "m1"], ["by way of the leader", "m3"]];

function drawReads(lane, top) {
  paths.forEach(([, ink], path) => {
    let last = gutter - 1;
    pen.fillStyle = paint[ink];
    for (const r of lane.reads) {
      const n = r[path + 1], px = Math.round(x(r[0]));
      if (!n || px <= last || px > width) continue; // one dot a pixel is enough
      last = px;
      const size = Math.min(5, 2 + Math.ceil(Math.log10(n + 1)));
      pen.fillRect(px - size / 2, top + 4 * path - size / 2, size, size);
    }
  });
}

// signs are distinct by shape. If there is not room for all, the ones listed first are shown.
const signs = { elected: "▲", killed: "✖", suspects: "†", false: "✓", paused: "‖", transfer: "⇢", start: "▸", end: "■", asked: "⇠", down: "▽", lost: "○", clock: "◷", disk: "▤", voters: "±", gap: "…", refused: "⊘", asks: "?" };
const ranks = Object.keys(signs);

function drawFlags(lane, py, i) {
  const taken = [], shown = lane.flags.filter((f) => x(f.at) >= gutter && x(f.at) <= width);
  for (const f of shown.sort((a, b) => ranks.indexOf(a.kind) - ranks.indexOf(b.kind)).slice(0, 400)) {
    const px = x(f.at);
    if (taken.some((t) => Math.abs(t - px) < 13)) continue;
    taken.push(px);
    const ink = ["killed", "paused", "lost"].includes(f.kind) ? paint.bad : ["refused", "asks"].includes(f.kind) ? paint.soft : colour(i);
    words(signs[f.kind] || "•", px, py, ink, "center", "600 14px system-ui, sans-serif");
    pen.fillStyle = ink;
    pen.fillRect(Math.round(px), py + 8, 1, 4);
  }
}

function drawName(lane, top, i) {
  pen.fillStyle = paint.card;
  pen.fillRect(0, top + 1, gutter, rowHeight - 1);
  pen.fillStyle = colour(i);
  pen.fillRect(0, top + 27, 5, 30);
  const name = lane.name.length > 12 ? `${lane.name.slice(0, 11)}…` : lane.name;
  words(name, 13, top + 35, paint.ink, "left", `600 ${width < 600 || name.length > 7 ? 13 : 16}px system-ui, sans-serif`);
  words(doing(lane, view.hover ?? view.head), 13, top + 55, paint.soft, "left", "12px system-ui, sans-serif");
}

// doing says what a member does at t, in one or two words.
function doing(lane, t) {
  const l = spanAt(lane.leases, t), p = spanAt(lane.promises, t);
  if (!heardAt(lane, t) && !(model.live && !paused && t > model.to)) return "not heard";
  if (l) return t < l.known ? "asked for it" : t < l.usable ? "holds it" : "margin";
  if (holdAt(lane, t)) return "on hold";
  return p ? "promised" : "free";
}

// drawMap draws all that is known, and marks the part that is shown above it.
function drawMap(top, height) {
  pen.fillStyle = paint.line;
  pen.fillRect(0, top, width, 1);
  const from = model.from, span = Math.max(1, Math.max(model.to, view.head) - from);
  const mx = (t) => gutter + ((t - from) / span) * (width - gutter);
  words("all", 13, top + height / 2, paint.soft);
  model.lanes.forEach((lane, i) => {
    for (const l of lane.leases) {
      pen.fillStyle = colour(i);
      const left = Math.max(gutter, mx(l.from));
      pen.fillRect(left, top + 5, Math.max(1, mx(l.usable) - left), height - 10);
    }
  });
  const left = Math.max(gutter, mx(view.from)), right = Math.min(width, mx(view.from + view.span));
  pen.strokeStyle = paint.ink;
  pen.strokeRect(left + 0.5, top + 2.5, Math.max(3, right - left - 1), height - 5);
}
