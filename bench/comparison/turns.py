"""Interleaved trials of several programs: A B A B ..., one trial each, after a warm-up of their own."""

import contextlib
import json
import statistics

from . import process


class Peers:
    """The folder that bench/peers/setup makes, or none."""

    def __init__(self, folder):
        self.folder = folder
        self.python = folder / "venv/bin/python" if folder else None
        self.chosen = folder / "chosen.json" if folder else None

    def missing(self, module):
        """Why a package cannot be a peer; "": it can."""
        why = self.lacks("", "venv/bin/python")
        if why or list(self.folder.glob(f"venv/lib/python*/site-packages/{module}")):
            return why
        return f"{module} is not installed there (bench/peers/setup DIR {module})"

    def lacks(self, part, *paths):
        """Why the part of the folder that holds these files cannot be a peer; "": it can."""
        if not self.folder:
            return "no --peers DIR was given (bench/peers/setup DIR makes it)"
        return next((f"no {path} in the folder of --peers (bench/peers/setup DIR {part})" for path in paths if not (self.folder / path).exists()), "")

    def load_choice(self, row):
        """Contenders that a run with all of them found worth measuring; None: not known."""
        return json.loads(self.chosen.read_text()).get(row) if self.chosen.exists() else None

    def save_choice(self, row, names):
        all_rows = json.loads(self.chosen.read_text()) if self.chosen.exists() else {}
        self.chosen.write_text(json.dumps(all_rows | {row: names}, indent=1) + "\n")


def measure(commands, trials, threads, say=lambda text: None):
    """{name: command of a paced program} -> {name: facts}, {name: [a trial's answer]}, {name: peak bytes}. The first round is a warm-up: a
    program that waited while others started has cold caches, and its memory may have been reclaimed."""
    with contextlib.ExitStack() as stack:
        programs = {}
        for name, command in commands.items():
            say(f"starting {name}")
            programs[name] = process.Paced(command, threads)
            stack.callback(programs[name].close)
        answers = {name: [] for name in programs}
        for trial in range(-1, trials):
            for name, program in programs.items():
                answer = program.ask()
                if trial >= 0:
                    answers[name].append(answer)
            if trial >= 0:
                say(f"trial {trial + 1} of {trials}: " + ", ".join(f"{name} {a[-1].get('seconds', 0) * 1e3:.0f} ms" for name, a in answers.items()))
        return {n: p.facts for n, p in programs.items()}, answers, {n: p.peak_bytes() for n, p in programs.items()}


def worth_measuring(answers, kinds, within=1.1):
    """The names near the fastest of their kind ({name: kind}); the others need no further measurement."""
    seconds = {name: statistics.median(t["seconds"] for t in trials) for name, trials in answers.items()}
    fastest = {kind: min(s for name, s in seconds.items() if kinds[name] == kind) for kind in set(kinds.values())}
    return [name for name, s in seconds.items() if s <= within * fastest[kinds[name]]]
