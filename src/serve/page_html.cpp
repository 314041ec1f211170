// See page.h.
#include "serve/page.h"

namespace ingot::serve {

const char* const kPageHtml = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Ingot</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page.css">
</head>
<body>
<header>
  <h1 id="model">…</h1>
  <p id="kind"></p>
  <p id="speed" aria-live="polite"></p>
  <svg id="rate" class="empty" viewBox="0 0 120 24" role="img"><title></title><polyline points=""/></svg>
  <button id="reset" type="button">New</button>
  <details id="settings">
    <summary>Settings</summary>
    <div class="panel">
      <label class="wide chat-only">System text <textarea id="system" rows="2"></textarea></label>
      <label>Temperature
        <input id="temperature" type="number" min="0" max="100" step="0.1" value="0.8"></label>
      <label>Top p <input id="top_p" type="number" min="0.01" max="1" step="0.01" value="0.95"></label>
      <label>Most tokens <input id="max_tokens" type="number" min="1" step="1" value="256"></label>
      <label>Answers <input id="n" type="number" min="1" max="8" step="1" value="1"></label>
      <label>Seed <input id="seed" type="number" step="1" placeholder="none"></label>
      <label class="chat-only">Thinking budget
        <input id="thinking_budget" type="number" min="0" step="1" placeholder="none"></label>
      <label class="check chat-only"><input id="thinking" type="checkbox" checked> Thinking</label>
      <label class="check"><input id="tokens" type="checkbox"> Show tokens and their alternatives</label>
      <label class="wide chat-only">Tools (a JSON list)
        <textarea id="tools" rows="3" spellcheck="false"></textarea></label>
      <label class="wide">API key <input id="key" type="password" autocomplete="off"></label>
    </div>
  </details>
</header>
<main id="turns" aria-live="polite"></main>
<form id="ask">
  <textarea id="text" rows="2" autofocus
    placeholder="Write…  (Enter sends, Shift+Enter begins a line)"></textarea>
  <button id="send">Send</button>
  <button id="stop" type="button" hidden>Stop</button>
</form>
<div id="tip" role="tooltip" hidden></div>
<script src="/page.js"></script>
</body>
</html>
)html";

}  // namespace ingot::serve
