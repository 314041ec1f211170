"""Measured programs: a paced one that makes a trial per line of input, so that trials of several interleave, and one that ends."""

import json
import os
import select
import subprocess
import tempfile

from . import machine


class Failed(Exception):
    """A program that is there ended badly."""


def pinned(command, threads):
    """Arguments of Popen for a program on its cores."""
    places = machine.cores(threads)
    return {"args": [str(c) for c in command], "env": machine.environment(threads), "preexec_fn": lambda: os.sched_setaffinity(0, places)}


def started(command, threads, **pipes):
    """Popen, or Failed with what to do."""
    try:
        return subprocess.Popen(**pinned(command, threads), **pipes)
    except FileNotFoundError:
        raise Failed(f"no program {command[0]}: build it (benchmarks: cmake -DINGOT_BENCH=ON), or give --ingot=PATH of a build that has it") from None


def failure(command, what, errors):
    return Failed(f"{' '.join(map(str, command))}\n{what}\n{errors[-2000:]}")


class Paced:
    """A child that says {"ready": ...} after its warm-up, and answers each line with a line of JSON."""

    def __init__(self, command, threads, limit=900):
        self.command, self.limit = command, limit
        self.errors = tempfile.TemporaryFile("w+")
        # Unbuffered: select() does not see lines that were read with an earlier one.
        self.child = started(command, threads, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0)
        self.facts = self._answer()

    def _answer(self):
        """Other lines than JSON are a library's chatter."""
        while True:
            if not select.select([self.child.stdout], [], [], self.limit)[0]:
                self.close()
                raise failure(self.command, f"no answer in {self.limit} s", self._said())
            line = self.child.stdout.readline()
            if not line:
                self.child.wait()
                raise failure(self.command, f"ended with {self.child.returncode}", self._said())
            if line.startswith(b"{"):
                return json.loads(line)

    def _said(self):
        self.errors.seek(0)
        return self.errors.read()

    def ask(self):
        self.child.stdin.write(b"\n")
        return self._answer()

    def peak_bytes(self):
        """The most resident memory so far."""
        with open(f"/proc/{self.child.pid}/status") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM:"))

    def close(self):
        for pipe in (self.child.stdin, self.child.stdout):
            pipe.close()
        try:
            self.child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def output(command, threads, limit=900):
    """Standard output of a program that ends."""
    child = started(command, threads, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, errors = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise failure(command, f"did not end in {limit} s", "") from None
    if child.returncode:
        raise failure(command, f"ended with {child.returncode}", out[-1000:] + errors)
    return out


def json_of(command, threads, limit=900):
    """What a program writes with --json."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        output([*command, f"--json={path}"], threads, limit)
        with open(path) as file:
            return json.load(file)
