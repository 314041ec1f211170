#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizer/: what Hugging Face's tokenizers library learns and encodes. tests/oracle compares.

usage: python tools/oracle/tokenizer_fixtures.py        (needs: pip install tokenizers)

For every pattern: a tokenizer trained on text.txt, its tokenizer.json, the ids of tricky strings with special tokens
recognised and not, and a hash of the ids of unicode.txt (characters of all categories, four contexts each).
"""
import json
import pathlib
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "tokenizer"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + "?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
NANOCHAT = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
            r"\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"" r"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
            r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]

TRICKY = [
    "", " ", "\n", "a", "Hello, world!", "The printer didn't mind.", "they'RE THEY'VE I'M we'LL o'clock 'S 'ſ don’t",
    "1 12 123 1234 12345 3.14159 1,000,000 ½ ² Ⅷ ٣٤٥ 一二三", "   leading", "trailing   ", "in   the    middle",
    " " * 100 + "x" + " " * 100, "\t\ttabs\t \t", "a\nb\r\nc\rd\n\n\ne \n f\n \n", "\r\r\n\n\r", "  \n  \r\n  ",
    "x\u00a0y\u2003z\u3000w\u1680\u2028\u2029\u0085v\u200bu\u180et\ufeffs\u2060", "\v\f\x1c\x1d\x1e\x1f",
    "日本語の文章です。漢字かな交じり文、カタカナ。", "中文句子，没有空格。数字１２３４", "한국어 문장입니다", "नमस्ते दुनिया", "שלום עולם",
    "مرحبا بالعالم", "สวัสดีชาวโลก", "Ελληνικά", "Привет, мир!", "🙂👍🏽👨‍👩‍👧‍👦🇩🇪🏳️‍🌈", "e\u0301 é n\u0303 ñ \u1e9b\u0323 가 \u1100\u1161\u11a8",
    "q\u0323\u0307 q\u0307\u0323 \u0958 \ufb1d \U0001d15e \u2126 \u212b", "ǅ ǈ ʰ ª º ﬀ ẞ ß İ ı K",
    "C++ == != <= >= -> :: && || // /* */ #include <a.h>", "foo_bar.baz(qux)[0] = {'k': \"v\"};", "https://example.org/a?b=c&d=%20#e",
    "!!!???...,,,;;;", "$%^&*()_+-=[]{}|\\`~@#", "a" * 63, "a" * 257, "=" * 100, "ab" * 200, "aaaa aaaaa aaaaaa" * 3,
    "the the The THE tHe", "<|endoftext|>", "x<|endoftext|>y", "<|endoftext|><|im_start|>user\nhi<|im_end|>\n", "<|im_end",
    "<|im_<|im_end|>|>", " <|im_start|> ", "\0null\0", "\U0010ffff\ue000\ufffd\ufffe", "<extra> and <extr a> e<extra>",
]


def unicode_text():
    chosen = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Cn")]
    chosen = [c for c in chosen if c < 0x3100 or c % 61 == 0]
    return "".join(chr(c) + "a" + chr(c) + "1 " + chr(c) + "\n" + chr(c) + "." for c in chosen)


def ids_hash(ids):
    h = 0
    for i in ids:
        h = (h * 1000003 + i + 1) % 2**64
    return f"{h:016x}"


def build(splits, nfc):
    tokenizer = Tokenizer(models.BPE())
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    if splits is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        last = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits + last)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def train(tokenizer, text, **options):
    trainer = trainers.BpeTrainer(special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
    tokenizer.train_from_iterator(text.split("\n\n"), trainer)


def cases(tokenizer):
    out = []
    for text in TRICKY:
        tokenizer.encode_special_tokens = False
        parsed = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        out.append({"text": text, "ids": parsed} | ({"plain": plain} if plain != parsed else {}))
    return out


def dump(name, tokenizer, options, text):
    content = {"library": "tokenizers " + tokenizers.__version__, "options": options,
               "tokenizer": json.loads(tokenizer.to_str()), "cases": cases(tokenizer),
               "unicode": ids_hash(tokenizer.encode(text, add_special_tokens=False).ids)}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, ensure_ascii=True, separators=(",", ":")) + "\n")


def main():
    text = (FOLDER / "text.txt").read_text()
    wide = unicode_text()
    (FOLDER / "unicode.txt").write_bytes(wide.encode())
    split = lambda regex: pre_tokenizers.Split(Regex(regex), "isolated")
    patterns = {"gpt2": None, "llama3": [split(LLAMA3)], "qwen2": [split(QWEN2)], "o200k": [split(O200K)],
                "nanochat": [split(NANOCHAT)], "deepseek-v3": [split(p) for p in DEEPSEEK]}
    for name, splits in patterns.items():
        tokenizer = build(splits, name == "qwen2")
        options = {"vocab_size": 640}
        train(tokenizer, text, **options)
        dump(name, tokenizer, {"pattern": name} | options, wide)
    for name, options in {"frequency": {"vocab_size": 2000, "min_frequency": 3},
                          "short": {"vocab_size": 700, "max_token_length": 5},
                          "exhausted": {"vocab_size": 5000}}.items():
        tokenizer = build(None, False)
        train(tokenizer, text, **options)
        dump(name, tokenizer, {"pattern": "gpt2"} | options, wide)
    # Settings that are not ours to train with, but occur in files.
    steps = [pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split("a", "merged_with_previous"),
             pre_tokenizers.Split(Regex(r"[.,]"), "merged_with_next"), pre_tokenizers.Split(Regex(r"\s"), "contiguous"),
             pre_tokenizers.Split(Regex(r"=*"), "isolated"), pre_tokenizers.Split("-", "removed"),
             pre_tokenizers.Split(Regex(r"\p{L}+"), "isolated", invert=True)]
    tokenizer = build(steps, True)
    train(tokenizer, text, vocab_size=640)
    tokenizer.add_tokens([AddedToken("<extra>", normalized=True), AddedToken("printer", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", pair="$A $B", special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)])
    dump("steps", tokenizer, None, wide)
    tokenizer = build(None, False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    train(tokenizer, text, vocab_size=640)
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = True
    content["model"]["merges"] = content["model"]["merges"][:150]
    dump("ignore", Tokenizer.from_str(json.dumps(content)), None, wide)


if __name__ == "__main__":
    main()
