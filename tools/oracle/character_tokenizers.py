#!/usr/bin/env python3
"""Tokenizers over characters with byte fallback (Gemma's and Llama 2's kinds, Metaspace, unigram), SentencePiece models, and
added tokens that strip white space.

  character_tokenizers.py fixtures               writes tests/fixtures/tokenizer/{gemma,llama2,...}.json and sentencepiece/
  character_tokenizers.py compare INGOT FOLDER   makes 20 MB of text in FOLDER (code, 20 scripts, emoji, white space), and
                                                 compares the ids of every fixture's tokenizer with those of `ingot
                                                 tokenizer encode`, file by file

Needs: tokenizers; sentencepiece for its models."""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_fixtures import FOLDER, TRICKY, build, ids_hash, train

MARK = "\u2581"
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]
DECODER = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
MORE = [
    " <bos> two  <bos>words", "a\u00a0<l>  b", "x  <r> \n\ty<r>", "<w> <w>s a<w> (<w>) \u00e9<w> <w>\u00df _<w> 1<w>", " <l><r>  <l> <r> ",
    "ends with spaces   ", "   ", "line\n\n  indented\n\ttab", "\u00e9\u00e8\u00ea \u4e2d\u6587 \U0001f642 \u0416", "Hello Hello  Hello",
]


def text():
    return (FOLDER / "text.txt").read_text()


def prepend():
    return normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])


def learned_bpe(pre_tokenizer, vocabulary):
    """Vocabulary and merges over characters, with special tokens and bytes first; rare characters are left to the bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=SPECIAL + BYTES, limit_alphabet=60, show_progress=False)
    lines = [line + "\n" for line in text().split("\n")]
    tokenizer.train_from_iterator(lines + ["a  b   c    d " * 20], trainer)
    return json.loads(tokenizer.to_str())["model"]


def with_fallback(model, **parts):
    """The learned model as files have it."""
    merges = [tuple(m) for m in model["merges"]]
    tokenizer = Tokenizer(models.BPE(model["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def template(token="<bos>"):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, 2)])


def gemma():
    return with_fallback(
        learned_bpe(None, 700),
        normalizer=normalizers.Replace(" ", MARK),
        pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"),
        decoder=decoders.Sequence(DECODER),
        post_processor=template(),
    )


def llama2():
    tokenizer = with_fallback(
        learned_bpe(pre_tokenizers.Metaspace(MARK, "never"), 700),
        normalizer=prepend(),
        decoder=decoders.Sequence([*DECODER, decoders.Strip(" ", 1, 0)]),
        post_processor=template(),
    )
    tokenizer.add_special_tokens([AddedToken("<n>", normalized=True, special=True)])
    return tokenizer


def metaspace(scheme, split):
    def make():
        return with_fallback(
            learned_bpe(pre_tokenizers.Metaspace(MARK, "never"), 700),
            pre_tokenizer=pre_tokenizers.Metaspace(MARK, scheme, split),
            decoder=decoders.Sequence(DECODER if scheme == "never" else [*DECODER, decoders.Strip(" ", 1, 0)]),
        )

    return make


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always")
    trainer = trainers.UnigramTrainer(vocab_size=500, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(text().split("\n"), trainer)
    learned = json.loads(tokenizer.to_str())["model"]["vocab"]
    kept = [(t, s) for t, s in learned[4:] if len(t) > 1 or t.isascii() or t == MARK]
    vocabulary = [(t, 0.0) for t in SPECIAL] + [(b, -20.0) for b in BYTES] + kept
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3, byte_fallback=True))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always")
    tokenizer.decoder = decoders.Sequence([*DECODER, decoders.Strip(" ", 1, 0)])
    return tokenizer


def strips():
    """A byte-level one with added tokens that take white space, or want to be words."""
    tokenizer = build(None, False)
    train(tokenizer, text(), vocab_size=640)
    tokenizer.add_tokens(
        [
            AddedToken("<l>", lstrip=True, normalized=False),
            AddedToken("<r>", rstrip=True, normalized=False),
            AddedToken("<w>", single_word=True, normalized=False),
        ]
    )
    return tokenizer


MAKERS = {
    "gemma": gemma,
    "llama2": llama2,
    "metaspace_first": metaspace("first", False),
    "metaspace_always": metaspace("always", True),
    "metaspace_never": metaspace("never", False),
    "unigram": unigram,
    "strips": strips,
}


def cases(tokenizer):
    out = []
    for t in TRICKY + MORE:
        tokenizer.encode_special_tokens = False
        parsed = tokenizer.encode(t, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(t, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        if isinstance(tokenizer.model, models.Unigram) and set(plain) & {0, 1, 2, 3}:
            continue  # theirs makes control tokens of plain text
        decoded = tokenizer.decode(parsed, skip_special_tokens=False)
        out.append({"text": t, "ids": parsed, "decoded": decoded} | ({"plain": plain} if plain != parsed else {}))
    return out


def dump(name, tokenizer):
    wide = (FOLDER / "unicode.txt").read_bytes().decode()
    tokenizer.encode_special_tokens = False
    content = {
        "library": "tokenizers " + tokenizers.__version__,
        "options": None,
        "tokenizer": json.loads(tokenizer.to_str()),
        "cases": cases(tokenizer),
        "unicode": ids_hash(tokenizer.encode(wide, add_special_tokens=False).ids),
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(content, ensure_ascii=True, separators=(",", ":")) + "\n")


SENTENCEPIECE = {
    "bpe": dict(model_type="bpe", vocab_size=700, add_dummy_prefix=True),
    "bpe_plain": dict(model_type="bpe", vocab_size=700, add_dummy_prefix=False, split_by_whitespace=False, user_defined_symbols=["\n", "<|x|>"]),
    "unigram": dict(model_type="unigram", vocab_size=600, add_dummy_prefix=True),
}


def sentencepiece_models():
    """Model files, and the ids that the sentencepiece library gives texts without special tokens."""
    import sentencepiece

    folder = FOLDER / "sentencepiece"
    folder.mkdir(exist_ok=True)
    for name, options in SENTENCEPIECE.items():
        with tempfile.TemporaryDirectory() as temporary:
            sentencepiece.SentencePieceTrainer.train(
                input=str(FOLDER / "text.txt"), model_prefix=f"{temporary}/m", minloglevel=2, num_threads=1,
                character_coverage=0.98,
                normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True, **options,
            )
            data = pathlib.Path(f"{temporary}/m.model").read_bytes()
        (folder / f"{name}.model").write_bytes(data)
        processor = sentencepiece.SentencePieceProcessor(model_proto=data)
        texts = [t for t in TRICKY + MORE if "\0" not in t and MARK not in t]
        out = [{"text": t, "ids": processor.encode(t)} for t in texts]
        (folder / f"{name}.json").write_text(json.dumps({"library": "sentencepiece " + sentencepiece.__version__, "cases": out}) + "\n")


def fixtures():
    for name, make in MAKERS.items():
        dump(name, make())
    sentencepiece_models()


SCRIPTS = (
    "LATIN GREEK CYRILLIC ARMENIAN HEBREW ARABIC DEVANAGARI BENGALI GURMUKHI TAMIL TELUGU KANNADA THAI LAO TIBETAN GEORGIAN "
    "HANGUL ETHIOPIC KHMER HIRAGANA KATAKANA CJK"
).split()


# Of Unicode 15 and 16: letters, marks, numbers, symbols, Han.
NEWER = [chr(c) for r in ("1C89-1C8A A7CB-A7CD 10D40-10D65 11F00-11F10 11F34-11F59 16D40-16D79 1CC00-1CCF9 1E4D0-1E4F9 1FAE8-1FAE9 2EBF0-2EE5D").split()
         for c in range(int(r.split("-")[0], 16), int(r.split("-")[1], 16) + 1)]


def corpus(folder, megabytes=20):
    """Files of 256 KB: code and text of this machine's Python, words of 22 scripts, emoji, runs of white space, digits."""
    rng = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    if len(list(folder.glob("*.txt"))) * 262144 >= megabytes * 1000000:
        return
    letters = {s: [] for s in SCRIPTS}
    for c in range(0x110000):
        word = unicodedata.name(chr(c), "").split(" ")[0]
        if word in letters and unicodedata.category(chr(c))[0] in "LMN":
            letters[word].append(chr(c))
    emoji = [chr(c) for c in range(0x1F300, 0x1FAF0)] + ["\u200d", "\ufe0f", "\U0001f3fd"]
    white = [" ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u3000", "\u2028", "        "]
    code = []
    for path in sorted(pathlib.Path(tokenizers.__file__).parents[1].rglob("*.py")):
        code.append(path.read_text(errors="replace"))
        if sum(map(len, code)) > megabytes * 500000:
            break
    code = "".join(code)

    def words():
        script = letters[rng.choice(SCRIPTS)]
        return "".join("".join(rng.choices(script, k=rng.randint(1, 9))) + rng.choice([" ", " ", ", ", ". ", "\n"]) for _ in range(40))

    def noise():
        kind = rng.randrange(5)
        if kind == 4:
            return "".join(rng.choices(NEWER, k=rng.randint(1, 8))) + rng.choice(["", " ", '"', "a"])
        if kind == 0:
            return "".join(rng.choices(emoji, k=rng.randint(1, 12))) + " "
        if kind == 1:
            return "".join(rng.choices(white, k=rng.randint(1, 30)))
        if kind == 2:
            return str(rng.randrange(10 ** rng.randint(1, 20))) + rng.choice([" ", "", ".", ","])
        return rng.choice("ab=-*# ") * rng.randint(1, 400)

    at = 0
    for n in range(megabytes * 1000000 // 262144 + 1):
        parts, size = [], 0
        while size < 262144:
            kind = rng.random()
            if kind < 0.5:
                part, at = code[at : at + 3000], (at + 3000) % len(code)
            else:
                part = words() if kind < 0.8 else noise()
            parts.append(part)
            size += len(part.encode())
        (folder / f"{n:03}.txt").write_bytes("".join(parts).encode())


PATTERNS = "gpt2 llama3 qwen2 o200k nanochat deepseek-v3 digits".split()


def compared_tokenizers(ingot, temporary):
    """(name, file for Ingot, function from text to ids): all fixtures, a vocabulary that Ingot learns for each of its patterns, and
    SentencePiece's models."""
    def theirs(path):
        tokenizer = Tokenizer.from_file(str(path))
        return lambda text: tokenizer.encode(text, add_special_tokens=False).ids

    for fixture in sorted(FOLDER.glob("*.json")):
        path = temporary / f"{fixture.stem}.json"
        path.write_text(json.dumps(json.loads(fixture.read_text())["tokenizer"]))
        yield fixture.stem, path, theirs(path)
    for pattern in PATTERNS:
        path = temporary / f"own-{pattern}.json"
        command = [ingot, "tokenizer", "train", *sorted((FOLDER.parents[2] / "docs").glob("*.md")), "--vocab", "2000", "--pattern", pattern]
        subprocess.run([*command, "--special-token", "<|endoftext|>", "--special-token", "<|im_start|>", "--out", path], check=True, capture_output=True)
        yield f"own-{pattern}", path, theirs(path)
    import sentencepiece

    for path in sorted((FOLDER / "sentencepiece").glob("*.model")):
        yield f"sentencepiece-{path.stem}", path, sentencepiece.SentencePieceProcessor(model_file=str(path)).encode


def odd_bytes():
    """Bytes of which most are no UTF-8: random ones, and text with random bytes in it."""
    rng = random.Random(2)
    text = bytearray((FOLDER / "unicode.txt").read_bytes()[:200000])
    for _ in range(len(text) // 20):
        text[rng.randrange(len(text))] = rng.randrange(256)
    return rng.randbytes(200000) + bytes(text)


def parts_of(name, text):
    """SentencePiece adds the scores of a unigram model in float32, so that ties fall by what stands before them, more of them the
    longer the text; it is asked for 1,000 characters at a time."""
    size = 1000 if name == "sentencepiece-unigram" else len(text)
    return [text[i:i + size] for i in range(0, len(text), size)]


def compare(ingot, folder, only):
    corpus(folder)
    files = sorted(folder.glob("*.txt"))
    odd = folder / "odd_bytes"
    odd.write_bytes(odd_bytes())
    bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, path, theirs in compared_tokenizers(ingot, pathlib.Path(temporary)):
            if only and name not in only:
                continue
            # A SentencePiece processor does not look for control tokens in a text, and knows no begin token here.
            special = [] if path.suffix == ".model" else ["--special"]
            equal = total = size = 0
            for file in files:
                text = file.read_bytes()
                same = True
                for part in parts_of(name, text.decode()):
                    wanted = theirs(part)
                    command = [ingot, "tokenizer", "encode", path, "-", "--ids", *special]
                    ours = subprocess.run(command, input=part.encode(), check=True, capture_output=True).stdout.split()
                    same &= [int(i) for i in ours] == wanted
                    total += len(wanted)
                equal += same
                size += len(text)
                if not same:
                    print(f"{name}: {file} differs")
            ids = subprocess.run([ingot, "tokenizer", "encode", path, "--file", odd, "--ids"], check=True, capture_output=True).stdout
            back = subprocess.run([ingot, "tokenizer", "decode", path, "-"], input=ids, check=True, capture_output=True).stdout
            round_trip = back == odd.read_bytes()
            bad += equal != len(files)
            print(f"{name}: {equal} of {len(files)} files equal, {size} bytes, {total} ids; "
                  f"{odd.stat().st_size} odd bytes {'come back' if round_trip else 'DO NOT COME BACK'}", flush=True)
    sys.exit(bad > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["fixtures", "compare"])
    parser.add_argument("ingot", nargs="?")
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", help="compare: these tokenizers alone")
    o = parser.parse_args()
    fixtures() if o.mode == "fixtures" else compare(o.ingot, o.folder, o.only)


if __name__ == "__main__":
    main()
