// See page.h. Text of models reaches the document as text nodes only.
#include "serve/page.h"

namespace ingot::serve {

const char* const kPageScript = R"js(
'use strict';
const $ = id => document.getElementById(id);
const make = (name, className, text) => {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
};

let model = '', chat = false, running = null;
let messages = [];  // of the conversation; of a base model: {role: 'text', content}

const remembered = ['system', 'temperature', 'top_p', 'max_tokens', 'n', 'seed', 'thinking_budget', 'tools',
  'key'];
for (const id of remembered) {
  try { $(id).value = sessionStorage.getItem(id) ?? $(id).value; } catch {}
  $(id).addEventListener('change', () => { try { sessionStorage.setItem(id, $(id).value); } catch {} });
}

const headers = () => {
  const all = {'Content-Type': 'application/json'};
  if ($('key').value) all.Authorization = 'Bearer ' + $('key').value;
  return all;
};
const failure = async response => {
  try { return (await response.json()).error.message; }
  catch { return response.status + ' ' + response.statusText; }
};
const get = async path => {
  const response = await fetch(path, {headers: headers()});
  if (!response.ok) throw new Error(await failure(response));
  return response.json();
};

async function begin() {
  try {
    const one = (await get('/v1/models')).data[0];
    chat = (await get('/tokenizer_info')).chat_template !== null;
    model = one.id;
    $('model').textContent = model;
    document.title = model + ' · Ingot';
    $('kind').textContent = chat ? 'chat, ' + one.max_model_len + ' tokens of context'
      : 'no chat template: it continues your text, ' + one.max_model_len + ' tokens of context';
    document.body.classList.toggle('base', !chat);
    if (!chat) $('text').placeholder = 'Begin a text…  (Enter sends, Shift+Enter begins a line)';
  } catch (e) {
    $('model').textContent = 'Ingot';
    $('kind').textContent = e.message;
    $('settings').open = true;
  }
}
$('key').addEventListener('change', begin);

const number = id => $(id).value === '' ? undefined : Number($(id).value);

function body() {
  const all = {model, stream: true, stream_options: {include_usage: true}, temperature: number('temperature'),
    top_p: number('top_p'), max_tokens: number('max_tokens'), n: number('n'), seed: number('seed')};
  if (!chat) {
    all.prompt = messages.map(m => m.content).join('');
    if ($('tokens').checked) all.logprobs = 5;
    return all;
  }
  all.messages = $('system').value ? [{role: 'system', content: $('system').value}, ...messages] : messages;
  if ($('tokens').checked) Object.assign(all, {logprobs: true, top_logprobs: 5});
  if (!$('thinking').checked) all.chat_template_kwargs = {enable_thinking: false};
  else if ($('thinking_budget').value !== '') all.thinking_budget = number('thinking_budget');
  if ($('tools').value.trim()) all.tools = JSON.parse($('tools').value);
  return all;
}

// The events of a stream, each as an object.
async function* events(response) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let held = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    held += decoder.decode(value, {stream: true});
    for (let end; (end = held.indexOf('\n\n')) >= 0; held = held.slice(end + 2)) {
      const data = held.slice(0, end).replace(/^data: /, '');
      if (data === '[DONE]') return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

// One of the answers to a turn: what the model wrote, and where it stands on the page.
class Answer {
  constructor(parent) {
    this.box = parent.appendChild(make('div', 'answer'));
    this.content = '';
    this.reasoning = '';
    this.calls = [];
    this.text = this.box.appendChild(make('span'));
  }
  fold(name, title, open) {
    if (this[name]) return this[name];
    const details = make('details', name);
    details.open = open;
    details.append(make('summary', '', title));
    this[name] = details.appendChild(make('div'));
    this.box.insertBefore(details, name === 'thinking' ? this.text : this.ending ?? null);
    return this[name];
  }
  add(choice) {
    const delta = choice.delta ?? {content: choice.text};
    if (delta.reasoning_content) {
      this.reasoning += delta.reasoning_content;
      this.fold('thinking', 'Thinking', false).append(delta.reasoning_content);
    }
    const tokens = listed(choice.logprobs);
    if (delta.content) {
      this.content += delta.content;
      if (chat || !tokens.length) this.text.append(delta.content);
    }
    for (const call of delta.tool_calls ?? []) this.calls.push(this.show(call));
    const place = chat && tokens.length ? this.fold('tokens', 'Tokens', true) : this.text;
    for (const token of tokens) place.append(tokenSpan(token));
    if (choice.finish_reason) {
      const said = this.content || this.calls.length;
      const ends = {stop: said ? '' : '(an empty answer)', length: '(budget reached)'};
      this.ending = this.box.appendChild(make('div', 'end', ends[choice.finish_reason] ?? ''));
    }
  }
  show(call) {
    const box = this.box.appendChild(make('div', 'call'));
    box.append(make('b', '', call.function.name), make('pre', '', call.function.arguments));
    const input = box.appendChild(make('input'));
    input.placeholder = 'what the tool answers; Enter sends';
    input.addEventListener('keydown', e => { if (e.key === 'Enter') answerTools(this); });
    return {id: call.id, type: 'function', function: call.function, input};
  }
  message() {
    const m = {role: 'assistant', content: this.content};
    if (this.reasoning) m.reasoning_content = this.reasoning;
    if (this.calls.length)
      m.tool_calls = this.calls.map(({id, type, function: f}) => ({id, type, function: f}));
    return m;
  }
}

// {text, logprob, top: [[text, logprob]]} of the tokens of either kind of reply.
function listed(logprobs) {
  if (!logprobs) return [];
  if (logprobs.content) return logprobs.content.map(t => ({text: t.token, logprob: t.logprob,
    top: t.top_logprobs.map(o => [o.token, o.logprob])}));
  return logprobs.tokens.map((text, i) => ({text, logprob: logprobs.token_logprobs[i],
    top: Object.entries(logprobs.top_logprobs[i] ?? {})}));
}

function tokenSpan(token) {
  const p = Math.exp(token.logprob);
  const level = p > 0.5 ? 't0' : p > 0.1 ? 't1' : p > 0.01 ? 't2' : 't3';
  const span = make('span', 'token ' + level, token.text);
  span.addEventListener('mouseenter', () => {
    const table = make('table');
    const rows = [...token.top];
    if (!rows.some(([text]) => text === token.text)) rows.push([token.text, token.logprob]);
    for (const [text, logprob] of rows.sort((a, b) => b[1] - a[1])) {
      const row = table.insertRow();
      row.className = text === token.text ? 'this' : '';
      row.insertCell().textContent = JSON.stringify(text);
      row.insertCell().textContent = (100 * Math.exp(logprob)).toFixed(1) + ' %';
    }
    $('tip').replaceChildren(table);
    $('tip').hidden = false;
    const at = span.getBoundingClientRect(), size = $('tip').getBoundingClientRect();
    $('tip').style.left = Math.max(4, Math.min(at.left, innerWidth - size.width - 4)) + 'px';
    const below = at.bottom + size.height + 8 < innerHeight;
    $('tip').style.top = (below ? at.bottom + 4 : at.top - size.height - 4) + 'px';
  });
  span.addEventListener('mouseleave', () => { $('tip').hidden = true; });
  return span;
}

// The answer that the conversation continues with; of several, a click chooses it.
let kept = null;
const keepAnswer = () => {
  if (kept) messages.push(chat ? kept.message() : {role: 'text', content: kept.content});
  kept = null;
};

function shown(role, text) {
  const turn = $('turns').appendChild(make('div', 'turn ' + role));
  if (chat) turn.append(make('b', '', role === 'user' ? 'You' : role));
  turn.append(make('span', chat ? '' : 'given', text));
  return turn;
}

async function run() {
  const turn = $('turns').appendChild(make('div', 'turn'));
  if (chat) turn.append(make('b', '', model));
  const box = turn.appendChild(make('div', 'answers'));
  const answers = [];
  const began = performance.now();
  let first = 0;
  running = new AbortController();
  $('send').hidden = true;
  $('stop').hidden = false;
  try {
    const response = await fetch(chat ? '/v1/chat/completions' : '/v1/completions',
      {method: 'POST', headers: headers(), body: JSON.stringify(body()), signal: running.signal});
    if (!response.ok) throw new Error(await failure(response));
    for await (const event of events(response)) {
      first ||= performance.now();
      for (const choice of event.choices) (answers[choice.index] ??= new Answer(box)).add(choice);
      if (event.usage) {
        const made = event.usage.completion_tokens;
        $('speed').textContent = made + ' tokens, ' + Math.round(made / (performance.now() - began) * 1000) +
          ' a second, first after ' + Math.round(first - began) + ' ms';
      }
      turn.scrollIntoView({block: 'end'});
    }
  } catch (e) {
    box.after(make('div', 'error', e.name === 'AbortError' ? '(stopped)' : e.message));
  }
  running = null;
  $('send').hidden = false;
  $('stop').hidden = true;
  kept = answers.find(a => a) ?? null;
  if (answers.length > 1) {
    box.classList.add('several');
    const keep = a => {
      kept = a;
      for (const other of answers) other.box.classList.toggle('kept', other === a);
    };
    keep(kept);
    for (const a of answers)
      a.box.addEventListener('click', () => { if (kept && answers.includes(kept)) keep(a); });
  }
  document.body.dataset.done = Number(document.body.dataset.done ?? 0) + 1;
}

function answerTools(answer) {
  if (running || kept !== answer) return;
  keepAnswer();
  for (const call of answer.calls) {
    messages.push({role: 'tool', tool_call_id: call.id, name: call.function.name, content: call.input.value});
    call.input.disabled = true;
    shown('tool', call.input.value);
  }
  run();
}

$('ask').addEventListener('submit', e => {
  e.preventDefault();
  const text = $('text').value;
  if (running || (!text && chat)) return;
  keepAnswer();
  if (text) {
    messages.push({role: chat ? 'user' : 'text', content: text});
    shown('user', text);
  }
  $('text').value = '';
  run();
});
$('text').addEventListener('keydown', e => {
  if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  $('ask').requestSubmit();
});
$('stop').addEventListener('click', () => running?.abort());
$('reset').addEventListener('click', () => {
  running?.abort();
  messages = [];
  kept = null;
  $('turns').replaceChildren();
  $('speed').textContent = '';
  $('text').focus();
});

// Tokens a second of all clients together, over the last minute: a line in the head of the page.
const counts = [];  // {at, tokens}, one a second
const tokensMade = metrics => Number(/^vllm:generation_tokens_total\{.*\} (\S+)$/m.exec(metrics)?.[1]);
function drawRate() {
  const rates = [];
  for (let i = 1; i < counts.length; ++i)
    rates.push(1000 * (counts[i].tokens - counts[i - 1].tokens) / (counts[i].at - counts[i - 1].at));
  const most = Math.max(1, ...rates), left = 120 - 2 * (rates.length - 1);
  $('rate').lastElementChild.setAttribute('points',
    rates.map((rate, i) => left + 2 * i + ',' + (23 - 22 * rate / most).toFixed(1)).join(' '));
  $('rate').firstElementChild.textContent = 'tokens a second of all clients, the last minute: now '
    + Math.round(rates.at(-1)) + ', at most ' + Math.round(most);
  $('rate').classList.remove('empty');
}
async function watchRate() {
  try {
    const response = document.hidden ? null : await fetch('/metrics', {headers: headers()});
    const tokens = response?.ok ? tokensMade(await response.text()) : NaN;
    if (!isNaN(tokens)) counts.push({at: performance.now(), tokens});
    if (counts.length > 61) counts.shift();
    if (counts.length > 1) drawRate();
  } catch {}  // the server is away; the next message says so
  setTimeout(watchRate, 1000);
}
watchRate();
begin();
)js";

}  // namespace ingot::serve
