"""Rows of the tasks in tasks/: from held-out text of the quickstart's sources (the Bible and the Jargon File, both in the
public domain), and from generators, at fixed seeds.

  scripts/quickstart_text data/quickstart-text
  ingot data recipes/quickstart.toml --validation-text HELD_OUT
  tools/tasks/make_tasks.py data/quickstart-text HELD_OUT tasks

Documents are held out by their hash, so no recipe with the same validation_fraction trains on them.
"""

import json
import random
import re
import sys
from pathlib import Path


def write(folder, name, rows):
    with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{name}: {len(rows)} rows")


def held_out(name):
    """The documents of a source that are held out: the file of those has no marks between them."""
    text, kept = ((Path(folder) / f"{name}.txt").read_text(encoding="utf-8") for folder in sys.argv[1:3])
    return [d.strip("\n") for d in re.split(r"<\|endoftext\|>\n?", text) if d.strip() and d.strip("\n") in kept]


def with_gold(r, right, wrong):
    choices = [right, *wrong]
    r.shuffle(choices)
    return {"choices": choices, "label": choices.index(right)}


def next_verse(r, chapters):
    verses = [(c, i) for c, lines in enumerate(chapters) for i in range(3, len(lines))]
    rows = []
    for c, i in r.sample(verses, 200):
        others = r.sample([v for v in verses if v[0] != c], 3)
        rows.append({"context": " ".join(chapters[c][i - 2:i]), **with_gold(r, chapters[c][i], [chapters[a][b] for a, b in others])})
    return rows


def word_order(r, chapters):
    rows = []
    lines = [v for lines in chapters for v in lines[1:] if 8 <= len(v.split()) <= 24]
    for verse in r.sample(lines, 200):
        words = verse.split()
        while True:
            i = r.randrange(1, len(words) - 2)
            if words[i].lower() != words[i + 1].lower():
                break
        swapped = words[:i] + [words[i + 1], words[i]] + words[i + 2:]
        rows.append({"start": " ".join(words[:i]), **with_gold(r, " ".join(words[i:]), [" ".join(swapped[i:])])})
    return rows


def last_word(r, chapters):
    rows = []
    for lines in chapters:
        for before, verse in zip(lines[1:], lines[2:]):
            m = re.fullmatch(r"(.*\S) ([A-Za-z]{4,})([.;:,?!]+)", verse)
            if m and len(before) < 300:
                rows.append({"context": f"{before} {m[1]}", "word": m[2]})
    return r.sample(rows, 200)


def spelling(r, texts):
    words = sorted({w for t in texts for w in re.findall(r"\b[a-z]{5,10}\b", t)})
    sentences = [s for t in texts for s in re.findall(r"[A-Z][^.!?\n]{40,140}[.!?]", t)]
    rows = []
    for sentence in sentences:
        places = [m for m in re.finditer(r"\b[a-z]{5,10}\b", sentence)]
        if not places:
            continue
        m = r.choice(places)
        word = m[0]
        i = r.randrange(1, len(word) - 2)
        wrong = word[:i] + word[i + 1] + word[i] + word[i + 2:]
        if wrong in words or wrong == word:
            continue
        rows.append({"start": sentence[:m.start()].rstrip(), **with_gold(r, word + sentence[m.end():], [wrong + sentence[m.end():]])})
    r.shuffle(rows)
    return rows[:200]


def definitions(r, entries):
    parsed = []
    for e in entries:
        m = re.match(r"([^\n:]{2,40}): ?(.*)", e, re.S)
        if m:
            text = re.sub(r"\s+", " ", m[2]).strip()
            text = re.sub(r"^(/[^/]*/(, )?)*\s*(n|vt|vi|adj|adv|v|excl|prov)\S*\s*", "", text)
            if len(text) > 60:
                parsed.append((m[1], text[:160].rsplit(" ", 1)[0]))
    rows = []
    for term, text in parsed:
        wrong = r.sample([t for other, t in parsed if other != term], 3)
        rows.append({"term": term, **with_gold(r, text, wrong)})
    return rows


def sequences(r):
    rows = []
    for _ in range(200):
        start, step = r.randrange(1, 40), r.randrange(1, 6)
        numbers = [start + step * i for i in range(6)]
        right = str(numbers[5])
        wrong = r.sample([str(numbers[5] + d) for d in (-3, -2, -1, 1, 2, 3, 7) if numbers[5] + d != numbers[4]], 3)
        rows.append({"sequence": ", ".join(map(str, numbers[:5])), **with_gold(r, right, wrong)})
    return rows


WORDS = "river stone light house green seven paper moon apple winter field bird salt road glass wind fish rope bell king".split()


def copying(r, count):
    return [{"words": (w := " ".join(r.sample(WORDS, r.randrange(2, 6)))), "answer": w} for _ in range(count)]


def reversing(r, count):
    rows = []
    for _ in range(count):
        words = r.sample(WORDS, r.randrange(2, 5))
        rows.append({"words": " ".join(words), "answer": " ".join(reversed(words))})
    return rows


def addition(r, count):
    rows = []
    for i in range(count):
        top = 10 if i % 2 == 0 else 100
        a, b = r.randrange(top), r.randrange(top)
        rows.append({"a": a, "b": b, "answer": a + b})
    return rows


def counting(r, count):
    rows = []
    for _ in range(count):
        word = r.choice(WORDS)
        others = [w for w in WORDS if w != word]
        n = r.randrange(1, 6)
        line = [word] * n + r.sample(others, r.randrange(1, 5))
        r.shuffle(line)
        rows.append({"line": " ".join(line), "word": word, "answer": n})
    return rows


def instructions(r, count):
    subjects = ["a river", "a long winter", "a house by the sea", "a king and his bird", "the moon", "a road", "a bell", "bread"]
    kinds = [
        lambda: ("no commas at all", "punctuation:no_comma", {}),
        lambda: ("only small letters", "change_case:english_lowercase", {}),
        lambda: ("only capital letters", "change_case:english_capital", {}),
        lambda: (f"exactly {(n := r.randrange(2, 5))} bullet points that begin with *", "detectable_format:number_bullet_lists", {"num_bullets": n}),
        lambda: (f"at least {(n := r.randrange(5, 40))} words", "length_constraints:number_words", {"relation": "at least", "num_words": n}),
        lambda: (f"fewer than {(n := r.randrange(10, 60))} words", "length_constraints:number_words", {"relation": "less than", "num_words": n}),
        lambda: (f"the words {(k := sorted(r.sample(WORDS, 2)))[0]} and {k[1]}", "keywords:existence", {"keywords": k}),
        lambda: (f"no use of the word {(w := r.choice(WORDS))}", "keywords:forbidden_words", {"forbidden_words": [w]}),
        lambda: ("double quotation marks around all of it", "startend:quotation", {}),
        lambda: ("a title in double angular brackets, as <<title>>", "detectable_format:title", {}),
        lambda: (f'the end "{(e := "That is all.")}"', "startend:end_checker", {"end_phrase": e}),
        lambda: ("one JSON object and nothing else", "detectable_format:json_format", {}),
    ]
    rows = []
    for i in range(count):
        chosen = [kind() for kind in r.sample(kinds, 1 + i % 2)]
        prompt = f"Write about {r.choice(subjects)}, with " + ", and with ".join(c[0] for c in chosen) + "."
        rows.append({"key": i, "prompt": prompt, "instruction_id_list": [c[1] for c in chosen], "kwargs": [c[2] for c in chosen]})
    return rows


def conversations(r, count):
    sums = lambda: f"What is {r.randrange(20)} + {r.randrange(20)}?"
    asks = [sums, lambda: f"Say {r.choice(WORDS)} backwards.", lambda: f"Name something that is like {r.choice(WORDS)}."]
    return [{"turns": [r.choice(asks)() for _ in range(3)]} for _ in range(count)]


def main():
    tasks = Path(sys.argv[3])
    chapters = [d.split("\n") for d in held_out("bible")]
    jargon = held_out("jargon")
    bible = [" ".join(c[1:]) for c in chapters]
    seeded = lambda name: random.Random("tasks " + name)
    write(tasks, "next_verse", next_verse(seeded("next_verse"), chapters))
    write(tasks, "word_order", word_order(seeded("word_order"), chapters))
    write(tasks, "last_word", last_word(seeded("last_word"), chapters))
    write(tasks, "spelling", spelling(seeded("spelling"), [re.sub(r"\s+", " ", t) for t in bible + jargon]))
    write(tasks, "definitions", definitions(seeded("definitions"), jargon))
    write(tasks, "sequences", sequences(seeded("sequences")))
    write(tasks, "bible_text", [{"text": "\n".join(c)[:1200].rsplit(" ", 1)[0]} for c in chapters])
    write(tasks, "jargon_text", [{"text": t[:1200].rsplit(" ", 1)[0]} for t in jargon])
    write(tasks, "copying", copying(seeded("copying"), 100))
    write(tasks, "reversing", reversing(seeded("reversing"), 100))
    write(tasks, "addition", addition(seeded("addition"), 200))
    write(tasks, "counting", counting(seeded("counting"), 100))
    write(tasks, "instructions", instructions(seeded("instructions"), 100))
    write(tasks, "conversations", conversations(seeded("conversations"), 40))


main()
