"""What transformers generates with its defaults: small models with a tokenizer whose template begins every text (as Llama 3
does) and a generation_config.json of several end ids, saved by save_pretrained in fp32, and generation.json with prompts,
the ids that the tokenizer makes of them, and 200 greedy tokens (fewer where an end id comes first).

One folder per model in tests/fixtures/generation/. Weights are random; rows of the embedding are exchanged so that each end id
ends one of four texts. Where two logits at a step are closer than 1e-4 the text is not taken.

  make_generation.py"""

import json
import shutil

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from common import FIXTURES
from make_exchange import build
from make_models import llama, zaya

FOLDER = FIXTURES / "generation"
BEGIN, END, TURN = SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
VOCABULARY, TOKENS, CLOSE = 300, 200, 1e-4
SIZES = dict(
    vocab_size=VOCABULARY + len(SPECIAL),
    max_position_embeddings=256,
    tie_word_embeddings=True,
    bos_token_id=VOCABULARY,
    eos_token_id=VOCABULARY + 1,
)
MODELS = {"llama": (llama, dict(SIZES, hidden_size=32, head_dim=8)), "zaya": (zaya, SIZES)}


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train([str(FIXTURES / "tokenizer" / "text.txt")], trainer)
    tokenizer.add_special_tokens(SPECIAL)
    assert tokenizer.get_vocab_size() == VOCABULARY + len(SPECIAL)
    template = processors.TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN}:1 $B:1", special_tokens=[(BEGIN, VOCABULARY)]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END)


def prompts(count):
    words = "the river runs under a stone bridge and sea winds carry salt over green hills while kings sleep".split()
    rng = np.random.default_rng(5)
    return [" ".join(rng.choice(words, n % 5 + 1)) for n in range(count)]


def run(model, tokenizer, prompt, **more):
    """The prompt's ids and the new ones, by transformers' defaults (but greedy), and the least gap of two best logits."""
    ids = tokenizer(prompt, return_tensors="pt")
    out = model.generate(
        **ids, do_sample=False, max_new_tokens=TOKENS, output_logits=True, return_dict_in_generate=True, pad_token_id=0, **more
    )
    best = torch.stack(out.logits)[:, 0].topk(2).values
    start = ids.input_ids.shape[1]
    case = dict(prompt=prompt, prompt_ids=out.sequences[0, :start].tolist(), ids=out.sequences[0, start:].tolist())
    return case, (best[:, 0] - best[:, 1]).min().item()


def choose(model, tokenizer):
    """Prompts whose texts run on, and for each end id a prompt and a token of its text that no other chosen text has. That token
    changes places with the end id, so that the text ends where it was."""
    runs = [c for c, gap in (run(model, tokenizer, p, eos_token_id=[]) for p in prompts(8)) if gap > CLOSE]
    chosen, seen = runs[:2], set()
    for c in chosen:
        seen |= set(c["ids"]) | set(c["prompt_ids"])
    swaps = []
    for c in runs[2:]:
        fresh = [t for t in c["ids"][4:] if t not in seen and t not in c["prompt_ids"] + c["ids"][:4]]
        if fresh and len(swaps) < 2:
            swaps.append((fresh[0], VOCABULARY + 1 + len(swaps)))
            chosen.append(c)
            seen |= set(c["ids"]) | set(c["prompt_ids"])
    return [c["prompt"] for c in chosen], swaps


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    return model, AutoTokenizer.from_pretrained(folder)


def main():
    for name, (make, over) in MODELS.items():
        for seed in range(8000, 8100):
            folder = FOLDER / name
            shutil.rmtree(folder, ignore_errors=True)
            build(make, over, torch.float32, seed).to(torch.float32).save_pretrained(folder)
            make_tokenizer().save_pretrained(folder)
            GenerationConfig(bos_token_id=VOCABULARY, eos_token_id=[VOCABULARY + 1, VOCABULARY + 2]).save_pretrained(folder)
            model, tokenizer = load(folder)
            texts, swaps = choose(model, tokenizer)
            if len(swaps) < 2:
                continue
            table = model.get_input_embeddings().weight.data
            for a, b in swaps:
                table[[a, b]] = table[[b, a]]
            model.save_pretrained(folder)
            GenerationConfig(bos_token_id=VOCABULARY, eos_token_id=[VOCABULARY + 1, VOCABULARY + 2]).save_pretrained(folder)
            made = [run(*load(folder), text) for text in texts]
            lengths = [len(c["ids"]) for c, _ in made]
            if min(gap for _, gap in made) > CLOSE and lengths[:2] == [TOKENS] * 2 and max(lengths[2:]) < TOKENS:
                break
        else:
            raise SystemExit(f"{name}: no seed has all cases")
        (folder / "generation.json").write_text(json.dumps([c for c, _ in made]) + "\n")
        for file in folder.iterdir():
            file.chmod(0o644)
        print(name, "seed", seed, lengths, sum(f.stat().st_size for f in folder.iterdir()), "bytes")


if __name__ == "__main__":
    main()
