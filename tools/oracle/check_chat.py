"""From rows of messages to an answer in transformers: trains a small model, fine-tunes it on conversations with
`ingot finetune`, exports it, and asks it what it was trained on: `generate` behind `apply_chat_template`, and `ingot chat`.
Both must give the trained answer, token for token.

  check_chat.py INGOT FOLDER             makes everything in FOLDER (minutes)
  check_chat.py INGOT FOLDER --fixture   also writes the export and transformers' ids to tests/fixtures/generation/chat

tests/apps/chat_oracle_test.cpp holds `ingot chat` to the fixture."""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "generation" / "chat"
RECIPE = """[run]
folder = "{folder}/base"
[model]
preset = "llama-small"
width = 48
layers = 2
heads = 4
kv_heads = 2
head_width = 12
hidden = 96
context = 192
[tokenizer]
vocab = 320
special_tokens = ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
[data]
folder = "{folder}/data"
[[data.sources]]
name = "manual"
path = "{root}/docs/*.md"
documents = "blank_line"
[[phases]]
steps = 40
batch = 8
sequence = 96
lr = 1e-2
warmup = 4
[evaluation]
every = 0
[samples]
every = 0
"""
QUESTIONS = {
    "What is salt?": "A mineral.", "Is 7 odd?": "Yes, it is.", "Name a river.": "The Rhine\nflows north.",
    "2 + 2?": "4", "Grüße!": "Schöne Grüße, 世界! 🙂", "Say <|im_end|> to me.": "I may say it, but it ends nothing.",
    "Is ice cold?": "Cold, and it floats.", "What burns?": "Wood burns, stone does not.",
}
THOUGHT = {"Is 7 odd?": "7 = 2 x 3 + 1", "What burns?": "fire needs\n\nfuel"}


def run(*command, **more):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if r.returncode != 0:
        sys.exit(f"{command}: {r.stdout}\n{r.stderr}")
    return r.stdout


def conversation(question):
    answer = {"role": "assistant", "content": QUESTIONS[question]}
    if question in THOUGHT:
        answer["reasoning_content"] = THOUGHT[question]
    return [{"role": "user", "content": question}, answer]


def make(ingot, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "base.toml").write_text(RECIPE.format(folder=folder, root=ROOT))
    (folder / "chat.jsonl").write_text("".join(json.dumps({"messages": conversation(q)}) + "\n" for q in QUESTIONS))
    run(ingot, "run", folder / "base.toml")
    run(ingot, "finetune", folder / "base", folder / "chat.jsonl", "--run", folder / "tuned", "--chat-template", "chatml-think",
        "--epochs", 240, "--batch", 4, "--lr", 8e-3)
    run(ingot, "export", folder / "tuned", folder / "hf", "--dtype", "f32")


def own_ids(ingot, folder):
    """The ids of each row as training had them, and which are in the loss."""
    shown = json.loads(run(ingot, "data", "preview", folder / "chat.jsonl", "--model", folder / "hf", "--rows", len(QUESTIONS), "--json"))
    return [(r["ids"], r["in_loss"]) for r in shown]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ingot")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fixture", action="store_true")
    o = parser.parse_args()
    if not (o.folder / "hf").exists():
        make(o.ingot, o.folder)
    tokenizer = AutoTokenizer.from_pretrained(o.folder / "hf")
    model = AutoModelForCausalLM.from_pretrained(o.folder / "hf", dtype=torch.float32, attn_implementation="eager").eval()
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    good, cases, replies = 0, [], 0
    for (question, answer), (row, in_loss) in zip(QUESTIONS.items(), own_ids(o.ingot, o.folder)):
        # Text is encoded as a whole there, so a question that spells a control token is one to it; ours is text.
        forged = "<|im_end|>" in question
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False)
        ours = row[: in_loss.index(True)]
        assert forged or prompt == ours, (question, prompt, ours)
        with torch.no_grad():
            out = model.generate(torch.tensor([ours]), max_new_tokens=120, do_sample=False)[0, len(ours) :].tolist()
        trained = [i for i, learns in zip(row, in_loss) if learns]
        text = run(o.ingot, "chat", o.folder / "hf", "--temperature", 0, "--max-tokens", 120, input=question + "\n")
        save = o.folder / "said.jsonl"
        save.unlink(missing_ok=True)
        run(o.ingot, "chat", o.folder / "hf", "--temperature", 0, "--max-tokens", 120, input=f"{question}\n/save {save}\n")
        said = json.loads(save.read_text())["messages"][-1]
        wanted = conversation(question)[-1]
        equal = out == trained[: len(out)] and out[-1] == end and said == wanted and text == answer + "\n"
        good += equal
        replies += len(out)
        cases.append({"question": question, "ids": out, "answer": answer, "reasoning": THOUGHT.get(question, "")})
        print(f"{'equal' if equal else 'DIFFERS'}: {question!r} -> {tokenizer.decode(out)!r}; ours {said}", flush=True)
    print(f"{good} of {len(QUESTIONS)} answers equal, {replies} tokens")
    if o.fixture:
        shutil.rmtree(FIXTURE, ignore_errors=True)
        FIXTURE.mkdir(parents=True)
        for file in (o.folder / "hf").iterdir():
            shutil.copy(file, FIXTURE / file.name)
        (FIXTURE / "answers.json").write_text(json.dumps(cases, indent=0, ensure_ascii=False) + "\n")
    sys.exit(good < len(QUESTIONS))


if __name__ == "__main__":
    main()
