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
.columns { columns: 2 340px; column-gap: 14px; } .columns > * { break-inside: avoid; margin-bottom: 14px; }
figure { margin: 0; position: relative; }
.card { padding: 14px 16px 12px; min-width: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 0 10px; align-items: baseline; margin-bottom: 8px; }
figcaption b { font-weight: 600; overflow-wrap: anywhere; }
figcaption span { color: var(--soft); font-size: 13px; }
svg { display: block; }
.plot { position: relative; touch-action: pan-y; color: var(--soft); font-size: 13px; }
.plot svg { cursor: crosshair; user-select: none; }
.grid { stroke: var(--grid); } .axis { stroke: var(--hair); }
.tick { fill: var(--soft); font-size: 12px; }
.line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.faint { fill: none; stroke: currentColor; stroke-width: 1; opacity: 0.33; stroke-linejoin: round; }
.dot { fill: currentColor; stroke: var(--card); stroke-width: 1.5; }
.cursor { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3; }
.range { fill: var(--soft); opacity: 0.18; }
.legend { overflow-wrap: anywhere; display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px;
  color: var(--soft); margin-bottom: 8px; }
.legend i { display: inline-block; width: 14px; height: 3px; border-radius: 2px; background: currentColor;
  margin-right: 6px; vertical-align: middle; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
.tip { position: absolute; top: 8px; color: var(--ink); pointer-events: none;
  background: var(--card); border: 1px solid var(--hair);
  border-radius: 7px; padding: 6px 10px; font-size: 12.5px; line-height: 1.45; box-shadow: 0 3px 14px #0002;
  white-space: nowrap; z-index: 2; }
.tip i { display: inline-block; width: 8px; height: 8px; border-radius: 4px;
  background: currentColor; margin-right: 6px; }
.tip b { float: right; margin-left: 16px; font-weight: 600; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr));
  gap: 16px 28px; }
.heat { display: grid; grid-template-columns: max-content minmax(0, 1fr); column-gap: 7px; }
.heat svg { width: 100%; }
.heat .rows span { display: block; font-size: 10.5px; line-height: 13px; text-align: right;
  color: var(--soft); }
.heat .steps { display: flex; justify-content: space-between; font-size: 12px; color: var(--soft); }
.tools { position: sticky; top: 0; z-index: 3; display: flex; flex-wrap: wrap; gap: 4px 18px;
  align-items: center;
  padding: 8px 0; margin-bottom: 8px; background: var(--page); font-size: 13.5px; color: var(--soft); }
.tools select, .tools button { font: inherit; color: var(--ink); background: var(--card);
  border: 1px solid var(--hair); border-radius: 6px; padding: 1px 6px; }
.tools i { font-style: normal; margin-left: auto; }
.maps figcaption b { font-weight: 500; font-size: 13px; color: var(--soft); }
.scale { display: flex; align-items: center; gap: 8px; font-size: 12.5px;
  color: var(--soft); margin: 12px 0 2px; }
.scale i { width: 180px; height: 9px; border-radius: 5px;
  background: linear-gradient(90deg, var(--below), var(--neutral), var(--above)); }
.bars { display: grid; grid-template-columns: fit-content(38%) 1fr max-content; gap: 7px 12px;
  align-items: center; font-size: 13.5px; }
.bars div { height: 12px; position: relative; } .bars span { overflow-wrap: anywhere; }
.bars u { position: absolute; top: 5px; height: 2px; background: var(--ink); opacity: 0.7; }
.bars i { display: block; height: 100%; min-width: 2px; border-radius: 0 4px 4px 0; background: var(--c0); }
.num { text-align: right; color: var(--soft); }
table { width: 100%; border-collapse: collapse; font-size: 13.5px; }
td, th { padding: 5px 0; border-top: 1px solid var(--grid); vertical-align: top; text-align: left; }
tr:first-child td, tr:first-child th { border-top: 0; }
th { font-weight: 500; color: var(--soft); }
td:first-child { overflow-wrap: anywhere; }
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
.scroll { overflow-x: auto; } .more { margin: 14px 0; } .tools + .card { margin-top: 0; }
h3 { font-size: 14px; font-weight: 600; margin: 14px 0 6px; }
@media (max-width: 480px) { main { padding: 20px 12px 40px; } .card { padding: 12px 10px 10px; }
  .brand { margin-left: 0; } .bars { font-size: 12.5px; gap: 6px 8px; } .tools { position: static; }
  .tools i { display: none; } }
@media print { body { background: none; } .card, .tile { break-inside: avoid; } }
)css";

}  // namespace ingot
