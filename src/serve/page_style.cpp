// See page.h. Colours are the report's.
#include "serve/page.h"

namespace ingot::serve {

const char* const kPageStyle = R"css(
:root { color-scheme: light dark;
  --page: #f6f5f2; --card: #ffffff; --ink: #1b1a18; --soft: #6c6a64; --hair: #e6e4de;
  --user: #2a6fd6; --model: #12966a; --tool: #b98400; --error: #c0392b; }
@media (prefers-color-scheme: dark) { :root {
  --page: #131312; --card: #1c1c1a; --ink: #eceae4; --soft: #98958c; --hair: #2d2c29;
  --user: #5a9bf2; --model: #36b98a; --tool: #d7a534; --error: #f0705f; } }
* { box-sizing: border-box; }
html, body { height: 100%; margin: 0; }
body { display: flex; flex-direction: column; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif; }
header, main, form { width: 100%; max-width: 1100px; margin: 0 auto; padding: 0 20px; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 14px; padding-top: 18px;
  padding-bottom: 10px; }
h1 { font-size: 21px; margin: 0; font-weight: 650; letter-spacing: -0.01em; overflow-wrap: anywhere; }
header p { margin: 0; color: var(--soft); font-size: 13.5px; }
#speed { margin-left: auto; min-width: min(100%, 23em); min-height: 1.5em; text-align: right;
  font-variant-numeric: tabular-nums; }
#rate { width: 120px; height: 24px; align-self: center; }
#rate.empty { visibility: hidden; }
#rate polyline { fill: none; stroke: var(--model); stroke-width: 1.5; stroke-linejoin: round; }
#settings { flex-basis: 100%; color: var(--soft); font-size: 13.5px; }
summary { cursor: pointer; }
.panel { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 10px 16px;
  padding: 12px 14px; margin-top: 6px; background: var(--card); border: 1px solid var(--hair);
  border-radius: 10px; }
.panel label { display: flex; flex-direction: column; gap: 2px; }
.panel .wide { grid-column: 1 / -1; }
.panel .check { flex-direction: row; align-items: center; gap: 6px; }
.base .chat-only { display: none; }
input, textarea, button { font: inherit; color: var(--ink); background: var(--card);
  border: 1px solid var(--hair); border-radius: 8px; padding: 5px 9px; }
input[type=checkbox] { padding: 0; }
button { cursor: pointer; }
button:hover, button:focus-visible { border-color: var(--user); }
main { flex: 1; overflow-y: auto; padding-top: 6px; padding-bottom: 20px; }
form { display: flex; gap: 10px; padding-top: 10px; padding-bottom: 18px; }
#text { flex: 1; resize: vertical; min-height: 46px; }
#send { background: var(--user); color: #fff; border-color: transparent; padding: 0 20px; }
.turn { margin: 14px 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.turn > b { display: block; font-size: 12.5px; color: var(--soft); font-weight: 600; }
.user > b { color: var(--user); }
.answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 250px), 1fr)); gap: 12px; }
.answer { background: var(--card); border: 1px solid var(--hair); border-radius: 10px; padding: 10px 14px;
  min-width: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.answers.several .answer { cursor: pointer; }
.answers.several .answer.kept { border-color: var(--model); box-shadow: 0 0 0 1px var(--model); }
.answer details { color: var(--soft); font-size: 13.5px; margin-bottom: 6px; }
.answer details.thinking > div { border-left: 2px solid var(--hair); padding-left: 10px; }
.answer .end { color: var(--soft); font-size: 12.5px; }
.call { border: 1px solid var(--tool); border-radius: 8px; padding: 6px 10px; margin: 6px 0;
  font-size: 13.5px; }
.call b { color: var(--tool); }
.call pre { margin: 2px 0 6px; white-space: pre-wrap; font-size: 12.5px; }
.call input { width: 100%; }
.error { color: var(--error); }
.given { font-weight: 600; }
.token { border-radius: 3px; }
.token:hover { outline: 1px solid var(--user); }
.t1 { background: color-mix(in srgb, var(--tool) 14%, transparent); }
.t2 { background: color-mix(in srgb, var(--tool) 32%, transparent); }
.t3 { background: color-mix(in srgb, var(--error) 38%, transparent); }
#tip { position: fixed; z-index: 2; pointer-events: none; background: var(--card); color: var(--ink);
  border: 1px solid var(--hair); border-radius: 8px; padding: 7px 10px; font-size: 12.5px;
  box-shadow: 0 3px 14px #0003; }
#tip table { border-spacing: 8px 0; }
#tip td { font-variant-numeric: tabular-nums; white-space: pre; }
#tip td + td { text-align: right; color: var(--soft); }
#tip .this { font-weight: 700; }
[hidden] { display: none !important; }
)css";

}  // namespace ingot::serve
