// See report_assets.h.
#include "report/report_assets.h"

namespace ingot {

const char* const kReportStyle = R"css(
:root { color-scheme: light dark;
  --page: #f6f5f2; --card: #ffffff; --ink: #1b1a18; --soft: #6c6a64; --hair: #e6e4de; --grid: #eeece7;
  --c0: #2a6fd6; --c1: #e8642c; --c2: #12966a; --c3: #b98400; --c4: #c9437e; --c5: #6b4fd0;
  --c6: #0f8f9e; --c7: #8a5a2b;
  --below: #2f6fb5; --neutral: #f0eeea; --above: #c8502a; }
@media (prefers-color-scheme: dark) { :root {
  --page: #131312; --card: #1c1c1a; --ink: #eceae4; --soft: #98958c; --hair: #2d2c29; --grid: #272623;
  --c0: #5a9bf2; --c1: #f08650; --c2: #36b98a; --c3: #d7a534; --c4: #e472a2; --c5: #9b85ee;
  --c6: #3fb8c6; --c7: #c08f5c;
  --below: #4d8fd6; --neutral: #2b2a27; --above: #e2703f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue",
  "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1180px; margin: 0 auto; padding: 36px 24px 64px; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 16px; margin-bottom: 20px; }
h1 { font-size: 27px; line-height: 1.2; letter-spacing: -0.015em; margin: 0; font-weight: 650; }
header p { margin: 0; color: var(--soft); }
.brand { margin-left: auto; font-size: 13px; }
h2 { font-size: 17px; margin: 36px 0 12px; font-weight: 620; letter-spacing: -0.005em; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(138px, 1fr)); gap: 12px;
  margin-bottom: 14px; }
.tile, .card { background: var(--card); border: 1px solid var(--hair); border-radius: 10px; }
.tile { padding: 13px 16px 12px; }
.tile b { display: block; font-size: 23px; line-height: 1.25; font-weight: 620; letter-spacing: -0.01em; }
.tile b small { font-size: 14px; font-weight: 500; color: var(--soft); margin-left: 3px; letter-spacing: 0; }
.tile span { display: block; font-size: 13px; line-height: 1.35; margin-top: 3px; color: var(--soft); }
.grid2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr));
  gap: 14px; margin-top: 14px; }
.columns { columns: 2 440px; column-gap: 14px; } .columns > * { break-inside: avoid; margin-bottom: 14px; }
figure { margin: 0; position: relative; }
.card { padding: 14px 16px 12px; min-width: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 0 10px; align-items: baseline; margin-bottom: 8px; }
figcaption b { font-weight: 600; } figcaption span { color: var(--soft); font-size: 13px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
.grid { stroke: var(--grid); } .axis { stroke: var(--hair); }
.tick { fill: var(--soft); font-size: 11.5px; }
.line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.faint { fill: none; stroke: currentColor; stroke-width: 1; opacity: 0.33; stroke-linejoin: round; }
.dot { fill: currentColor; stroke: var(--card); stroke-width: 1.5; }
.cursor { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px;
  color: var(--soft); margin-bottom: 8px; }
.legend i { display: inline-block; width: 14px; height: 3px; border-radius: 2px; background: currentColor;
  margin-right: 6px; vertical-align: middle; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
.tip { position: absolute; pointer-events: none; background: var(--card); border: 1px solid var(--hair);
  border-radius: 7px; padding: 6px 10px; font-size: 12.5px; line-height: 1.45; box-shadow: 0 3px 14px #0002;
  white-space: nowrap; z-index: 2; }
.tip i { display: inline-block; width: 8px; height: 8px; border-radius: 4px;
  background: currentColor; margin-right: 6px; }
.tip b { float: right; margin-left: 16px; font-weight: 600; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr));
  gap: 16px 28px; }
.maps figcaption b { font-weight: 500; font-size: 13px; color: var(--soft); }
.scale { display: flex; align-items: center; gap: 8px; font-size: 12.5px;
  color: var(--soft); margin: 12px 0 2px; }
.scale i { width: 180px; height: 9px; border-radius: 5px;
  background: linear-gradient(90deg, var(--below), var(--neutral), var(--above)); }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 7px 12px;
  align-items: center; font-size: 13.5px; }
.bars div { height: 12px; }
.bars i { display: block; height: 100%; min-width: 2px; border-radius: 0 4px 4px 0; background: var(--c0); }
.num { text-align: right; color: var(--soft); }
table { width: 100%; border-collapse: collapse; font-size: 13.5px; }
td, th { padding: 5px 0; border-top: 1px solid var(--grid); vertical-align: top; text-align: left; }
tr:first-child td, tr:first-child th { border-top: 0; }
th { font-weight: 500; color: var(--soft); }
td:first-child { white-space: nowrap; }
td + td, .wide th + th { text-align: right; padding-left: 18px; overflow-wrap: anywhere; }
.none { color: var(--soft); margin: 20px 0; }
.sample { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0 0 6px;
  font: 14px/1.6 ui-serif, Georgia, "DejaVu Serif", serif; }
.sample em { font-style: normal; font-weight: 650; }
details > summary { cursor: pointer; color: var(--soft); font-size: 13.5px; }
pre { margin: 0; overflow-x: auto;
  font: 12.5px/1.55 ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
pre i { font-style: normal; color: var(--soft); } pre b { font-weight: 600; color: var(--c0); }
.stack > * + * { margin-top: 14px; }
@media print { body { background: none; } .card, .tile { break-inside: avoid; } }
)css";

const char* const kReportScript = R"js(
for (const svg of document.querySelectorAll('svg.plot')) {
  const data = svg.dataset, figure = svg.parentNode, series = JSON.parse(data.series);
  const left = +data.left, right = +data.right, low = +data.low, high = +data.high;
  const box = svg.viewBox.baseVal;
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  line.setAttribute('class', 'cursor'); line.setAttribute('y1', 10); line.setAttribute('y2', box.height - 26);
  const tip = document.createElement('div');
  tip.className = 'tip';
  const nearest = (xs, x) => {
    let a = 0, b = xs.length - 1;
    while (b - a > 1) { const m = (a + b) >> 1; if (xs[m] < x) a = m; else b = m; }
    return Math.abs(xs[a] - x) <= Math.abs(xs[b] - x) ? a : b;
  };
  const text = v => v === null ? 'not finite' :
    Math.abs(v) >= 1e4 ? Math.round(v).toLocaleString('en') : String(+v.toPrecision(5));
  svg.addEventListener('pointermove', event => {
    const place = svg.getBoundingClientRect(), scale = place.width / box.width;
    const px = Math.min(right, Math.max(left, (event.clientX - place.left) / scale));
    const x = low + (px - left) / (right - left) * (high - low);
    const step = series[0].x[nearest(series[0].x, x)];
    tip.replaceChildren();
    const head = document.createElement('div');
    const count = Math.round(data.x === 'bytes' ? 2 ** step : step).toLocaleString('en');
    head.textContent = data.x === 'bytes' ? count + ' bytes' : 'step ' + count;
    tip.append(head);
    for (const s of series) {
      const row = document.createElement('div'), dot = document.createElement('i'),
        value = document.createElement('b');
      dot.className = 'c' + s.c;
      value.textContent = text(s.y[nearest(s.x, step)]) + data.unit;
      row.append(value, dot, s.n);
      tip.append(row);
    }
    const at = left + (step - low) / (high - low) * (right - left);
    line.setAttribute('x1', at); line.setAttribute('x2', at);
    svg.append(line); figure.append(tip);
    const offset = place.left - figure.getBoundingClientRect().left + at * scale;
    tip.style.left = (offset + tip.offsetWidth + 30 > place.width ? offset - tip.offsetWidth - 12
      : offset + 12) + 'px';
    tip.style.top = (svg.offsetTop || (place.top - figure.getBoundingClientRect().top)) + 8 + 'px';
  });
  svg.addEventListener('pointerleave', () => { line.remove(); tip.remove(); });
}
)js";

}  // namespace ingot
