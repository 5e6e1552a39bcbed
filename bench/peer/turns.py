"""Contenders that take turns: each is a process that stays, makes itself ready, and measures once for each line it reads."""
import os
import select
import statistics
import subprocess
import tempfile
import time


class Worker:
    """What it answers is a line, or a RuntimeError that says why there is none."""

    def __init__(self, command, limit, environment=None):
        self.limit = limit
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**os.environ, "JAX_PLATFORMS": "cpu", "JAX_TRACEBACK_FILTERING": "off",
                                             **(environment or {})})
        try:
            self.ready = self.answer()
        except RuntimeError:
            self.close()
            raise

    def answer(self):
        if not select.select([self.process.stdout], [], [], self.limit)[0]:
            raise RuntimeError(f"skipped: no answer in {self.limit:g} s, graph and warm-up included")
        line = self.process.stdout.readline().strip()
        if not line:
            self.log.seek(0)
            last = (self.log.read().strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"failed with status {self.process.wait()}: {last[:100]}")
        return line

    def turn(self, line="go"):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def seconds_of_call(work):
    """One call of work that takes long and has been done before."""

    def seconds():
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return seconds


def seconds_of_calls(work):
    """One call of `work`, by calling it often enough for the clock."""

    def seconds(calls):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        return time.perf_counter() - start

    seconds(2)
    calls = 1
    while (taken := seconds(calls)) < 3e-4:
        calls = max(calls + 1, int(calls * min(16.0, 1.2 * 3e-4 / taken)))
    return lambda: seconds(calls) / calls


def median_seconds(measure, for_seconds=0.2):
    """Of what `measure` returns, called for about this long."""
    times, start = [], time.perf_counter()
    while not times or (time.perf_counter() - start < for_seconds and len(times) < 501):
        times.append(measure())
    return statistics.median(times)
