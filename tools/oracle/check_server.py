"""The server against stock clients: OpenAI's client (chat, streams, tools, log-probabilities, errors), and
lm-evaluation-harness 0.4.13, whose table must equal that of `ingot eval` to the last printed digit.

  check_server.py INGOT MODEL CHAT_MODEL [--limit N]       (needs openai, lm_eval[api])

MODEL is put to five tasks through local-completions, and to two generation tasks as well; CHAT_MODEL, which has a chat
template, to two generation tasks through local-chat-completions. The result files that `ingot eval --output` writes are
then read by the harness's own readers. Tables that hold nothing but 0 and 1 prove little: the script counts the others."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCORED = ["spelling", "word_order", "sequences", "definitions", "next_verse"]
GENERATED = ["addition", "copying"]
CHAT_TASKS = {
    "chat_addition": ("addition.jsonl", "{{a}} + {{b}} =", "number", "regex", 'pattern = "-?[0-9]+"\n'),
    "chat_copying": ("copying.jsonl", "Words: {{words}}\\nAgain:", "line", "strip", ""),
}
failures = []


def check(holds, what):
    print(("ok      " if holds else "FAILED  ") + what)
    if not holds:
        failures.append(what)


class Server:
    def __init__(self, ingot, model, *options, key=""):
        self.process = subprocess.Popen([ingot, "serve", model, "--port", "0", *options], stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "INGOT_API_KEY": key})
        for line in self.process.stdout:
            if found := re.match(r"page +(http://\S+)/", line):
                self.url = found[1]
            if "Ctrl-C ends." in line:
                return
        raise SystemExit("the server did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def openai_client(ingot, model):
    import openai

    with Server(ingot, model, key="secret") as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0)
        name = client.models.list().data[0].id
        ask = {"model": name, "messages": [{"role": "user", "content": "3 + 4 ="}], "max_tokens": 16, "seed": 3, "temperature": 0.7}
        whole = client.chat.completions.create(**ask)
        check(whole.choices[0].message.role == "assistant" and whole.usage.completion_tokens > 0, "openai: chat")
        stream = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
        check(text == whole.choices[0].message.content, "openai: the stream has the text of the whole reply")
        check(stream[-1].usage == whole.usage, "openai: the stream's usage")
        listed = client.chat.completions.create(**ask, n=2, logprobs=True, top_logprobs=3).choices
        tokens = listed[0].logprobs.content
        check(len(listed) == 2 and listed[0].message == whole.choices[0].message, "openai: the first of two answers")
        check("".join(t.token for t in tokens).startswith(text) and all(len(t.top_logprobs) == 3 and t.logprob <= 0 for t in tokens),
              "openai: log-probabilities")
        tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}
        with_tool = client.chat.completions.create(**ask, tools=[tool], tool_choice="auto")
        check(with_tool.usage.prompt_tokens > whole.usage.prompt_tokens, "openai: tools stand in the prompt")
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 3}'}}]}
        answer = {"role": "tool", "tool_call_id": "1", "content": "7"}
        after = client.chat.completions.create(**{**ask, "messages": [*ask["messages"], call, answer]}, tools=[tool])
        check(after.choices[0].finish_reason in ("stop", "length", "tool_calls"), "openai: a tool's answer")
        done = client.completions.create(model=name, prompt="1 + 1 =", max_tokens=0, echo=True, logprobs=2)
        check(done.choices[0].text == "1 + 1 =" and done.choices[0].logprobs.token_logprobs[0] is None, "openai: completion, echo")
        for error, change in ((openai.BadRequestError, {"n": 0}), (openai.BadRequestError, {"response_format": {"type": "json_object"}}),
                              (openai.NotFoundError, {"model": "other"}), (openai.BadRequestError, {"messages": [{"role": "tool"}]})):
            try:
                client.chat.completions.create(**{**ask, **change})
                check(False, f"openai: {change} is refused")
            except error as e:
                check(bool(e.body.get("message")), f"openai: {change} is {error.__name__}")
        try:
            openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0).models.list()
            check(False, "openai: a wrong key")
        except openai.AuthenticationError:
            check(True, "openai: a wrong key is AuthenticationError")


def cell(text):
    """The harness's table drops zeros that all numbers of a column end with."""
    text = text.strip()
    return text.rstrip("0").rstrip(".") if re.fullmatch(r"\d+\.\d+", text) else text


def rows_of(table):
    """The lines of results tables, without what aligns them. Metrics of one task have an order of their own."""
    lines = [[cell(c) for c in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")]
    rows, task = [], ""
    for c in lines:
        if not set(c[0]) <= set("-:") and c[0] != "Tasks":
            task = c[0] or task
            rows.append((task, *c[2:]))
        elif not c[0]:
            rows.append((task, *c[2:]))
    return sorted(rows)


def compare(what, ours, theirs):
    a, b = rows_of(ours), rows_of(theirs)
    values = [float(r[5]) for r in a]
    check(bool(a) and a == b, f"{what}: the tables are equal ({len(values)} values, {sum(v not in (0, 1) for v in values)} of them not 0 or 1)")
    if a != b:
        print("ours:\n" + ours + "\ntheirs:\n" + theirs)


def harness(server, kind, tasks, folder, limit, extra=()):
    path = "chat/completions" if kind == "local-chat-completions" else "completions"
    with urllib.request.urlopen(server.url + "/v1/models") as reply:
        context = json.load(reply)["data"][0]["max_model_len"]
    arguments = (f"model=served,base_url={server.url}/v1/{path},tokenizer_backend=remote,num_concurrent=4,max_retries=1,"
                 f"max_length={context}")
    command = [sys.executable, "-m", "lm_eval", "--model", kind, "--model_args", arguments, "--tasks", ",".join(tasks),
               "--include_path", folder, *(["--limit", str(limit)] if limit else []), *extra]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-3000:])
    return done.stdout


def evaluate(ingot, model, tasks, limit, *extra):
    command = [ingot, "eval", model, "--tasks", ",".join(tasks), *(["--limit", str(limit)] if limit else []), *extra]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def write_chat_tasks(folder):
    for name, (data, prompt, label, function, rest) in CHAT_TASKS.items():
        (folder / f"{name}.toml").write_text(
            f'kind = "generation"\ndata = "{data}"\nprompt = "{prompt}"\ntarget = "{{{{answer}}}}"\n[sampling]\nmax_tokens = 24\n'
            f'stop = ["\\n"]\n[chat]\nenabled = true\n[[filters]]\nname = "{label}"\n[[filters.steps]]\nfunction = "{function}"\n{rest}')
        (folder / data).write_bytes((ROOT / "tasks" / data).read_bytes())
    return [str(folder / f"{name}.toml") for name in CHAT_TASKS]


def readers(folder):
    """What reads the harness's result files: its table, its tracker, and the data sets of samples."""
    import datasets
    from lm_eval.utils import get_file_datetime, get_results_filenames, get_sample_results_filenames, make_table

    files = [str(p) for p in Path(folder).rglob("*.json*")]
    results, samples = get_results_filenames(files), get_sample_results_filenames(files)
    check(len(results) == 1 and len(samples) >= 2, f"reader: {len(results)} result file, {len(samples)} files of samples")
    check(bool(get_file_datetime(Path(results[0]).name)), "reader: the date in a file's name")
    loaded = json.loads(Path(results[0]).read_text())
    check("|" in make_table(loaded), "reader: make_table")
    for path in samples:
        rows = datasets.load_dataset("json", data_files=path, split="train", cache_dir=folder + "/cache")
        task = re.match(r"samples_(.+)_\d{4}-", Path(path).name)[1]
        check(len(rows) == loaded["n-samples"][task]["effective"] and {"doc_id", "target", "filtered_resps"} <= set(rows.column_names),
              f"reader: datasets reads {len(rows)} samples of {task}")
        for metric in rows[0]["metrics"]:
            label = rows[0]["filter"]
            mine = [r[metric] for r in rows if r["filter"] == label]
            if all(isinstance(v, (int, float)) for v in mine):
                value = loaded["results"][task][f"{metric},{label}"]
                check(abs(sum(mine) / len(mine) - value) < 1e-12, f"reader: {task}'s {metric} is the mean of its samples")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("ingot", "model", "chat_model"):
        parser.add_argument(name)
    parser.add_argument("--limit", type=int, default=0)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        openai_client(o.ingot, o.chat_model)
        tasks = SCORED + GENERATED
        subprocess.run([o.ingot, "eval", "--tasks", ",".join(tasks), "--export-harness", name], check=True, cwd=ROOT)
        ours = evaluate(o.ingot, o.model, tasks, o.limit, "--output", str(folder / "results"))
        with Server(o.ingot, o.model, "--name", "served") as server:
            compare("local-completions", ours, harness(server, "local-completions", tasks, name, o.limit))
        readers(str(folder / "results"))
        files = write_chat_tasks(folder)
        subprocess.run([o.ingot, "eval", "--tasks", ",".join(files), "--export-harness", name], check=True, cwd=ROOT)
        with Server(o.ingot, o.chat_model, "--name", "served") as server:
            compare("local-chat-completions", evaluate(o.ingot, o.chat_model, files, o.limit),
                    harness(server, "local-chat-completions", list(CHAT_TASKS), name, o.limit, ["--apply_chat_template"]))
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
