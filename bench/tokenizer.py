#!/usr/bin/env python3
"""Compares our tokenizer with Hugging Face's tokenizers (the Rust library behind its Python package) on the same work.

encode      a batch of documents, by pattern, kind of text and number of threads; a tokenizer of 32,768 tokens that we trained.
train       32,768 tokens from 128 MiB of text, by number of threads; counting included, reading the files not.

The text comes from the distribution's packages (documentation, manual pages, C headers, Python, Perl), each file a document.
"english" is everything without the translated manuals, "mixed" is the manuals of other languages and scripts, "train" has both. Every
measurement is a process of its own, ours and theirs interleaved; a round gives a ratio (theirs / ours); the median counts.
Both must give the same ids or the same merges, else it stops.

usage: bench/tokenizer.py build/release/bench/ingot_bench_tokenizer [encode train] [--python PYTHON] [--rounds 5] [--json FILE]
PYTHON: one that can import tokenizers (its newest release in a virtual environment)."""

import argparse
import gzip
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

MIB = 1 << 20
LARGEST = MIB  # a file above this is data, not a document
TREES = ["/usr/share/doc", "/usr/share/man", "/usr/include", "/usr/lib/python3", "/usr/lib/python3.11", "/usr/share/perl"]
SIZES = {"train": 128 * MIB, "english": 16 * MIB, "mixed": 8 * MIB}
PATTERNS = ["gpt2", "llama3", "qwen2", "o200k", "nanochat", "deepseek-v3"]
WANTED = 2.0


def translated(path):
    """A manual in a language other than English stands one folder deeper: man/ja/man1/ls.1.gz."""
    return path.parts[3] == "man" and not path.parts[4].startswith("man")


def text_of(path):
    data = path.read_bytes()
    try:
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().replace("\f", "\n")
    except (OSError, EOFError, UnicodeDecodeError):
        return ""


def make_corpus(folder):
    """Writes train, english and mixed: distinct files in the order of a hash of their path, form feeds between them."""
    if all((folder / name).exists() for name in SIZES):
        return
    folder.mkdir(parents=True, exist_ok=True)
    paths = [p for tree in TREES for p in pathlib.Path(tree).rglob("*") if p.is_file() and not p.is_symlink()]
    paths.sort(key=lambda p: hashlib.sha256(str(p).encode()).digest())
    wanted = {name: [] for name in SIZES}
    have, seen = dict.fromkeys(SIZES, 0), set()
    for path in paths:
        takers = ["train", "mixed" if translated(path) else "english"]
        takers = [name for name in takers if have[name] < SIZES[name]]
        text = text_of(path) if takers else ""
        if not text or len(text) > LARGEST or "\0" in text or text in seen:
            continue
        seen.add(text)
        for name in takers:
            wanted[name].append(text)
            have[name] += len(text.encode())
    for name, texts in wanted.items():
        if have[name] < SIZES[name] * 0.8:
            sys.exit(f"only {have[name]} bytes of text for '{name}', wanted {SIZES[name]}: install packages with documentation")
        (folder / name).write_bytes("\f".join(texts).encode())


def peer(arguments):
    """The same work by tokenizers; called in a process of its own."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    documents = [d for d in pathlib.Path(arguments[-1]).read_bytes().decode().split("\f") if d]
    if arguments[0] == "encode":
        tokenizer = Tokenizer.from_file(arguments[1])
        start = time.perf_counter()
        encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        seconds = time.perf_counter() - start
        values = [i for e in encoded for i in e.ids]
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=int(arguments[1]), special_tokens=["<|endoftext|>"], show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        start = time.perf_counter()
        tokenizer.train_from_iterator(documents, trainer)
        seconds = time.perf_counter() - start
        vocabulary = tokenizer.get_vocab()
        merges = json.loads(tokenizer.to_str())["model"]["merges"]
        values = [vocabulary[part] for merge in merges for part in (merge.split(" ") if isinstance(merge, str) else merge)]
    value = 0
    for v in values:
        value = (value * 1000003 + v + 1) % 2**64
    print(json.dumps({"seconds": seconds, "hash": f"{value:016x}", "tokens": len(values)}))


class Bench:
    def __init__(self, o):
        self.o, self.rows = o, []

    def run(self, command, threads):
        environment = dict(os.environ, INGOT_THREADS=str(threads), RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM="false" if threads == 1 else "true")
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, env=environment)
        if done.returncode:
            sys.exit(f"failed: {' '.join(map(str, command))}")
        return json.loads(done.stdout)

    def compare(self, name, ours, theirs, megabytes, bar=None):
        """One row. ours and theirs: (command, threads), interleaved."""
        a, b = [], []
        for _ in range(self.o.rounds):
            mine, other = self.run(*ours), self.run(*theirs)
            if mine["hash"] != other["hash"]:
                sys.exit(f"{name}: the results differ: {mine} and {other}")
            a.append(mine["seconds"])
            b.append(other["seconds"])
        ratios = [y / x for x, y in zip(a, b)]
        row = {"name": name, "ours": megabytes / statistics.median(a), "peer": megabytes / statistics.median(b), "unit": "MB/s",
               "ratio": statistics.median(ratios), "spread": [min(ratios), max(ratios)], "bar_ratio": bar}
        self.rows.append(row)
        print(f"{name:<38}{row['ours']:>9.2f}{row['peer']:>9.2f}   {row['ratio']:.2f} ({min(ratios):.2f} .. {max(ratios):.2f})", flush=True)

    def work(self, name, ours, theirs, text):
        for threads in self.o.threads:
            self.compare(f"{name}, threads {threads}", ([self.o.program, *ours], threads), ([self.o.python, __file__, "--peer", *theirs], threads),
                         text.stat().st_size / 1e6, WANTED)

    def scaling(self, name, ours, text):
        """All threads against one."""
        most, command = max(self.o.threads), [self.o.program, *ours]
        if most > 1:
            self.compare(f"{name}, ours {most} / ours 1", (command, most), (command, 1), text.stat().st_size / 1e6)


def train(bench, folder):
    text = folder / "train"
    bench.work("train gpt2", ["train", "gpt2", bench.o.vocabulary, text], ["train", bench.o.vocabulary, text], text)
    bench.scaling("train gpt2", ["train", "gpt2", bench.o.vocabulary, text], text)


def encode(bench, folder):
    for pattern in bench.o.patterns:
        tokenizer = folder / f"{pattern}-{bench.o.vocabulary}.json"
        if not tokenizer.exists():
            bench.run([bench.o.program, "train", pattern, bench.o.vocabulary, folder / "train", tokenizer], 2)
        for kind in ("english", "mixed"):
            arguments = ["encode", tokenizer, folder / kind]
            bench.work(f"encode {pattern}, {kind}", arguments, arguments, folder / kind)
        bench.scaling(f"encode {pattern}, train", ["encode", tokenizer, folder / "train"], folder / "train")


def main():
    if sys.argv[1:2] == ["--peer"]:
        return peer(sys.argv[2:])
    parts = {"encode": encode, "train": train}
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("program", type=lambda path: str(pathlib.Path(path).resolve()))
    p.add_argument("parts", nargs="*", metavar="part", help="encode, train; default: both")
    p.add_argument("--python", default=sys.executable, help="an interpreter that has the package tokenizers")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=lambda s: [int(x) for x in s.split(",")], default=[1, 2])
    p.add_argument("--patterns", type=lambda s: s.split(","), default=PATTERNS)
    p.add_argument("--vocabulary", type=int, default=32768)
    p.add_argument("--text", type=pathlib.Path, default=pathlib.Path("/tmp/ingot-bench-text"), help="folder that keeps the collected text")
    p.add_argument("--json", help="write the rows to this file too")
    o = p.parse_args()
    if unknown := set(o.parts) - set(parts):
        p.error(f"unknown: {' '.join(unknown)}; there are {' '.join(parts)}")
    make_corpus(o.text)
    bench = Bench(o)
    print(f"{'MB/s':<38}{'ours':>9}{'theirs':>9}   ours / theirs: median (least .. most of {o.rounds}); wanted {WANTED}")
    for part in o.parts or parts:
        parts[part](bench, o.text)
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(bench.rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
