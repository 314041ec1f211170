// See report_assets.h. The page has <div class=plot data-plot=JSON> (plot.cpp), controls with data-view
// (report.cpp) and, in <script id=clocks>, tokens and hours of each run by step.
#include "report/report_assets.h"

namespace ingot {

const char* const kReportScript = R"js(
'use strict';
const clocks = JSON.parse(document.getElementById('clocks')?.textContent || '[]');
const view = {x: 'step', logx: false, logy: false, smooth: 2, from: null, to: null};
try { Object.assign(view, JSON.parse(sessionStorage.getItem('view:' + location.pathname) || '{}')); } catch {}
const remember = () => {
  try { sessionStorage.setItem('view:' + location.pathname, JSON.stringify(view)); } catch {}
};
const make = (name, attributes, text) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  return e;
};
const nearest = (xs, x) => {
  let a = 0, b = xs.length - 1;
  while (b - a > 1) { const m = (a + b) >> 1; if (xs[m] < x) a = m; else b = m; }
  return Math.abs(xs[a] - x) <= Math.abs(xs[b] - x) ? a : b;
};
const short = v => {
  const s = Math.abs(v);
  if (s === 0) return '0';
  if (s < 1e-3 || s >= 1e15) return String(+v.toPrecision(3));
  const units = ['', 'k', 'M', 'B', 'T'];
  let u = 0;
  while (u < 4 && Math.abs(v) >= (u ? 999.95 : 9999.5)) { v /= 1000; ++u; }
  return u ? +v.toPrecision(4) + units[u] : (+v.toPrecision(4)).toLocaleString('en');
};
const bytes = p => {
  const u = Math.min(4, Math.floor(p / 10));
  return Math.round(2 ** (p - 10 * u)) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB'][u];
};

// The steps of a series in the unit of the x axis, by the clock of its run.
function abscissa(series, plot) {
  const clock = clocks[series.run];
  if (plot.log2 || view.x === 'step' || !clock) return series.x;
  const to = clock[view.x];
  return series.x.map(x => {
    const at = clock.step, i = Math.min(Math.max(nearest(at, x), 1), at.length - 1);
    if (i < 1) return to[0];
    return to[i - 1] + (x - at[i - 1]) / (at[i] - at[i - 1]) * (to[i] - to[i - 1]);
  });
}
// The mean of the values within `percent` % of the series around each, less near both ends, so that the line
// neither lags nor bends there.
function moving_mean(y, percent) {
  const reach = Math.floor(y.length * percent / 200);
  return y.map((value, i) => {
    if (value === null) return null;
    const half = Math.min(reach, i, y.length - 1 - i);
    let sum = 0, count = 0;
    for (let j = i - half; j <= i + half; ++j) if (y[j] !== null) { sum += y[j]; ++count; }
    return sum / count;
  });
}
function ticks(low, high, wanted) {
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find(f => f * power >= raw * 0.999), out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && out.length < 20; ++i)
    out.push(i * step);
  return out;
}
function log_ticks(low, high) {  // of log10 values
  const out = [], factors = high - low < 2 ? [1, 2, 5] : [1];
  const stride = Math.max(1, Math.ceil((high - low) / 6));
  for (let p = Math.floor(low); p <= high; p += stride)
    for (const f of factors) {
      const t = p + Math.log10(f);
      if (t >= low - 1e-9 && t <= high + 1e-9) out.push(t);
    }
  return out.length > 1 ? out : ticks(low, high, 3);
}

function draw(box) {
  const plot = box.plot, width = box.clientWidth, height = plot.height;
  if (width < 40) return;
  const zoomed = !plot.log2 && view.from !== null;
  const lines = plot.series.map(s => {
    const x = abscissa(s, plot);
    return {...s, x, raw: s.y, y: s.smooth && view.smooth > 0 ? moving_mean(s.y, view.smooth) : s.y};
  });
  const inside = x => !zoomed || (x >= view.from && x <= view.to);
  const visible = lines.flatMap(l => l.x.flatMap((x, i) => !inside(x) ? [] :
    [l.y[i], l.smooth ? l.raw[i] : null].filter(v => v !== null).map(v => [x, v])));
  if (visible.length === 0) { box.replaceChildren('no values in this range'); return; }
  const logx = view.logx && !plot.log2 && visible.some(([x]) => x > 0);
  const logy = (plot.log || view.logy) && visible.every(([, v]) => v > 0);
  const sx = v => logx ? Math.log10(Math.max(v, 1e-9)) : v, sy = v => logy ? Math.log10(v) : v;
  let xs = visible.map(([x]) => x).filter(x => !logx || x > 0);
  if (!zoomed && view.x === 'step') xs = xs.concat(plot.span.filter(v => v !== null && (!logx || v > 0)));
  let [x0, x1] = zoomed ? [view.from, view.to] : xs.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)],
    [Infinity, -Infinity]);
  if (!zoomed && !plot.log2 && !logx && x0 > 0 && x0 < 0.05 * x1) x0 = 0;
  if (logx && x0 <= 0) x0 = Math.min(...xs);
  x0 = sx(x0); x1 = sx(x1);
  if (!(x1 > x0)) x1 = x0 + 1;
  let [y0, y1] = visible.reduce(([a, b], [, v]) => [Math.min(a, sy(v)), Math.max(b, sy(v))],
    [Infinity, -Infinity]);
  const zero = plot.from_zero && !logy;
  if (zero) { y0 = Math.min(y0, 0); y1 = Math.max(y1, 0); }
  const pad = y1 - y0 > 1e-12 * Math.abs(y1) ? 0.04 * (y1 - y0) : 0.1 * Math.abs(y1) || 1;
  y1 += pad;
  if (!(zero && y0 === 0)) y0 -= pad;

  const yt = (logy ? log_ticks(y0, y1) : ticks(y0, y1, 4)).map(t => [t, short(logy ? 10 ** t : t) +
    (plot.percent ? '%' : '')]);
  const left = 14 + 6.7 * Math.max(...yt.map(([, label]) => label.length)), right = width - 14;
  const top = 8, bottom = height - 26;
  const px = v => left + (sx(v) - x0) / (x1 - x0) * (right - left);
  const py = v => bottom - (sy(v) - y0) / (y1 - y0) * (bottom - top);
  const svg = make('svg', {width, height});
  for (const [t, label] of yt) {
    const y = bottom - (t - y0) / (y1 - y0) * (bottom - top);
    svg.append(make('line', {class: 'grid', x1: left, x2: right, y1: y, y2: y}),
      make('text', {class: 'tick', x: left - 7, y: y + 4, 'text-anchor': 'end'}, label));
  }
  svg.append(make('line', {class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom}));
  const wanted = Math.max(2, Math.floor(width / 95));
  const xt = plot.log2 ? ticks(x0, x1, wanted).filter(Number.isInteger) :
    logx ? log_ticks(x0, x1) : ticks(x0, x1, wanted);
  const unit = plot.log2 === 'tokens' ? 'tokens' : plot.log2 ? '' :
    {step: 'step', tokens: 'tokens', hours: 'hours'}[view.x];
  let used = -Infinity;
  for (const t of xt) {
    const x = left + (t - x0) / (x1 - x0) * (right - left);
    const label = plot.log2 === 'bytes' ? bytes(t) : plot.log2 ? short(2 ** t) : short(logx ? 10 ** t : t);
    const half = 3.6 * label.length;
    if (x - half < used + 8 || x + half > right + 12) continue;
    used = x + half;
    svg.append(make('text', {class: 'tick', x, y: bottom + 17, 'text-anchor': 'middle'}, label));
  }
  if (right - used > 8 * unit.length + 12)
    svg.append(make('text', {class: 'tick', x: right, y: bottom + 17, 'text-anchor': 'end'}, unit));
  const id = 'clip' + (draw.count = (draw.count || 0) + 1), clip = make('clipPath', {id});
  clip.append(make('rect', {x: left - 4, y: top - 6, width: right - left + 8, height: bottom - top + 10}));
  const body = make('g', {'clip-path': `url(#${id})`});
  svg.append(clip, body);
  const path = (x, y) => {
    let d = '', down = false;
    x.forEach((v, i) => {
      if (y[i] === null || (logx && v <= 0) || (logy && y[i] <= 0)) { down = false; return; }
      d += `${down ? 'L' : 'M'}${px(v).toFixed(1)} ${py(y[i]).toFixed(1)}`;
      down = true;
    });
    return d;
  };
  for (const l of lines) {
    if (l.low || (l.smooth && view.smooth > 0)) {
      const x = l.low ? l.x.flatMap(v => [v, v]) : l.x;
      const y = l.low ? l.low.flatMap((v, i) => [v, l.high[i]]) : l.raw;
      body.append(make('path', {class: 'faint c' + l.color, d: path(x, y)}));
    }
    body.append(make('path', {class: 'line c' + l.color, d: path(l.x, l.y)}));
    if (l.markers)
      l.x.forEach((v, i) => l.y[i] !== null &&
        body.append(make('circle', {class: 'dot c' + l.color, cx: px(v), cy: py(l.y[i]), r: 3.5})));
  }
  box.replaceChildren(svg);
  pointer(box, svg, {plot, lines, left, right, top, bottom, px,
    at: p => { const v = x0 + (p - left) / (right - left) * (x1 - x0); return logx ? 10 ** v : v; }});
}

// Values under the pointer, and a range chosen by dragging.
function pointer(box, svg, f) {
  const cursor = make('line', {class: 'cursor', y1: f.top, y2: f.bottom});
  const range = make('rect', {class: 'range', y: f.top, height: f.bottom - f.top});
  const tip = document.createElement('div');
  tip.className = 'tip';
  const place = e => Math.min(f.right, Math.max(f.left, e.clientX - svg.getBoundingClientRect().left));
  const value = v => v === null ? 'not finite' :
    Math.abs(v) >= 1e4 ? Math.round(v).toLocaleString('en') : String(+v.toPrecision(5));
  let start = null;
  const show = e => {
    const x = f.at(place(e)), head = document.createElement('div');
    const first = f.lines[0].x[nearest(f.lines[0].x, x)];
    head.textContent = f.plot.log2 ? Math.round(2 ** first).toLocaleString('en') + ' ' + f.plot.log2 :
      view.x === 'hours' ? first.toPrecision(3) + ' hours' :
        `${view.x === 'step' ? 'step ' : ''}${Math.round(first).toLocaleString('en')}` +
        (view.x === 'step' ? '' : ' tokens');
    tip.replaceChildren(head);
    for (const l of f.lines) {
      const row = document.createElement('div'), dot = document.createElement('i'),
        number = document.createElement('b');
      dot.className = 'c' + l.color;
      number.textContent = value(l.y[nearest(l.x, first)]) + (f.plot.percent ? '%' : '');
      row.append(number, dot, l.name);
      tip.append(row);
    }
    const at = f.px(first);
    cursor.setAttribute('x1', at); cursor.setAttribute('x2', at);
    svg.append(cursor); box.append(tip);
    const beside = at + 12 + tip.offsetWidth > f.right ? at - tip.offsetWidth - 12 : at + 12;
    tip.style.left = Math.max(0, beside) + 'px';
  };
  const hide = () => { cursor.remove(); tip.remove(); };
  svg.addEventListener('pointermove', e => {
    if (start === null) { show(e); return; }
    const now = place(e);
    range.setAttribute('x', Math.min(start, now)); range.setAttribute('width', Math.abs(now - start));
    svg.append(range);
  });
  svg.addEventListener('pointerdown', e => {
    if (f.plot.log2 || e.button !== 0) return;
    start = place(e);
    hide();
    svg.setPointerCapture(e.pointerId);
  });
  svg.addEventListener('pointerup', e => {
    if (start === null) return;
    const ends = [f.at(start), f.at(place(e))].sort((a, b) => a - b), far = Math.abs(place(e) - start) > 8;
    start = null;
    range.remove();
    if (far) change({from: ends[0], to: ends[1]});
  });
  svg.addEventListener('pointercancel', () => { start = null; range.remove(); });
  svg.addEventListener('pointerleave', () => { if (start === null) hide(); });
  svg.addEventListener('dblclick', () => change({from: null, to: null}));
}

const boxes = [...document.querySelectorAll('.plot')];
const widths = new Map();
const resized = new ResizeObserver(entries => {
  for (const {target} of entries)
    if (widths.get(target) !== target.clientWidth) { widths.set(target, target.clientWidth); draw(target); }
});
for (const box of boxes) { box.plot = JSON.parse(box.dataset.plot); resized.observe(box); }

const controls = [...document.querySelectorAll('[data-view]')];
function reflect() {
  for (const c of controls) {
    const k = c.dataset.view;
    if (k === 'reset') c.hidden = view.from === null;
    else if (c.type === 'checkbox') c.checked = view[k];
    else c.value = view[k];
  }
}
function change(values) {
  if ('x' in values) { view.from = view.to = null; }
  Object.assign(view, values);
  remember();
  reflect();
  boxes.forEach(draw);
}
for (const c of controls) {
  const k = c.dataset.view;
  if (k === 'reset') c.addEventListener('click', () => change({from: null, to: null}));
  else c.addEventListener('change', () =>
    change({[k]: c.type === 'checkbox' ? c.checked : k === 'smooth' ? +c.value : c.value}));
}
reflect();

// The page of a run that is training is rewritten: read it again while somebody looks.
const live = document.querySelector('[data-live]');
if (live) {
  setInterval(() => { if (document.visibilityState === 'visible') location.reload(); }, 15000);
  const age = Date.now() / 1000 - +live.dataset.live;
  if (age > +live.dataset.patience)
    live.textContent += ` · no news for ${Math.round(age / 60).toLocaleString('en')} minutes`;
}
)js";

}  // namespace ingot
