"""The suite jax: ours and the libraries of JAX that differentiate solvers, all called from JAX's compiled functions, in one
run. Each contender is a process, is checked against the reference before it is timed, and takes turns with the others."""
import dataclasses
import json
import math
import pathlib
import statistics
import sys
import time

from peer import report
from peer.environment import SCRIPT, progress, version_of
from peer.report import amount, paragraph, seconds, size_text
from peer.turns import Worker, median_seconds, seconds_of_calls

PACKAGES = ["numpy", "jax", "jaxopt", "optimistix", "qpax"]
SIZES = {
    "logistic": ((200, 5), (1000, 10), (1000, 100), (10000, 100)),
    "qp": ((10, 4, 10), (50, 20, 50), (100, 40, 100), (300, 100, 300)),
    "many": ((64, 10, 4, 10), (64, 50, 20, 50)),
}
QUICK = {(200, 5), (1000, 10), (10, 4, 10), (50, 20, 50), (64, 10, 4, 10)}
HEADINGS = {
    "logistic": "weighted logistic regression, (N,n): gradient of |x|^2/2 by N weights",
    "qp": "dense quadratic programs, (n,m,p): gradient of |x|^2/2 by Q, q, A, b, G and h",
    "many": "batches of quadratic programs that share all but q, (B,n,m,p): gradient by all q",
}
TURNS, SECONDS_OF_TURNS = 5, 15.0
WRONG_X, WRONG_GRADIENT = 1e-7, 1e-4  # beyond which a contender has not solved the problem
GEOMETRIC_MEAN, LEAST = 4.0, 2.0


def data_of(problem, size):
    import numpy as np
    from peer import data

    if problem == "logistic":
        return data.logistic_with_intercept(*size)
    if problem == "qp":
        return data.qp_data(*size)
    count, *size = size
    Q, q, A, b, G, h = data.qp_data(*size)
    return Q, q + 0.3 * data.gaussian(12, count * len(q)).reshape(count, -1), A, b, G, h


def reference_of(problem, parts):
    """x, and the gradients by whatever is differentiated by."""
    import numpy as np
    from peer import reference

    if problem == "logistic":
        return reference.logistic(*parts)
    if problem == "qp":
        return reference.program(*parts)[:2]
    Q, q, A, b, G, h = parts
    each = [reference.program(Q, of_one, A, b, G, h) for of_one in q]
    return np.stack([one[0] for one in each]), [np.stack([one[1][1] for one in each])]


@dataclasses.dataclass
class Row:
    """Seconds; `gradient` is the solve with the gradient. Errors are relative to the largest entry."""

    problem: str
    size: tuple
    contender: str
    method: str
    solve: float | None = None
    gradient: float | None = None
    error: float | None = None
    gradient_error: float | None = None
    over_ours: tuple = (None, None)
    version: str = ""
    reason: str = ""

    def name(self):
        return f"{self.contender} {self.method}"


# ---- a contender's process ----


def worker(problem, contender, method, *size):
    """Says how wrong x and the gradient are, and then takes a turn for each line it reads."""
    import numpy as np
    from peer import contenders_jax, reference

    parts = data_of(problem, tuple(map(int, size)))
    make, _ = contenders_jax.CONTENDERS[problem][contender, method]
    solve, gradient = make(*parts)
    x, expected = reference_of(problem, parts)
    wrong = reference.error([np.asarray(solve())], [x])
    found = [np.asarray(part) for part in gradient()]
    print("ready", wrong, reference.error(found, expected), flush=True)
    solving, both = seconds_of_calls(solve), seconds_of_calls(gradient)
    for _ in sys.stdin:
        print(median_seconds(solving, 0.1), median_seconds(both), flush=True)


# ---- all contenders of a size ----


def run_size(rows, options):
    workers, times, spent = {}, {}, {}
    try:
        for i, row in enumerate(rows):
            progress(f"{row.problem} {size_text(row.size)}: {row.name()} makes ready")
            command = [sys.executable, SCRIPT, "--worker", "jax", row.problem, row.contender, row.method, *map(str, row.size)]
            try:
                # Threads of OpenBLAS, which JAX takes LAPACK from, get in the way of XLA's own.
                workers[i] = Worker(command, options.limit, {"OPENBLAS_NUM_THREADS": "1"})
                row.error, row.gradient_error = map(float, workers[i].ready.split()[1:])
                if not row.error < WRONG_X:
                    raise RuntimeError(f"failed: its x is wrong by {row.error:.1e}")
                if not row.gradient_error < WRONG_GRADIENT:
                    row.reason = f"its gradient is wrong by {row.gradient_error:.1e}: only the solve is compared"
                times[i], spent[i] = [], 0.0
            except RuntimeError as problem:
                row.reason = str(problem)
                if i in workers:
                    workers.pop(i).close()
        for turn in range(1 if options.quick else TURNS):
            for i in list(workers):
                if spent[i] > SECONDS_OF_TURNS:
                    continue
                progress(f"{rows[i].problem} {size_text(rows[i].size)}: turn {turn + 1} of {rows[i].name()}")
                begin = time.perf_counter()
                try:
                    times[i].append(tuple(map(float, workers[i].turn().split())))
                except RuntimeError as problem:
                    rows[i].reason = str(problem)
                    workers.pop(i).close()
                    continue
                spent[i] += time.perf_counter() - begin
                time.sleep(0.03)  # threads that still spin
    finally:
        for one in workers.values():
            one.close()
    progress("")
    for i, row in enumerate(rows):
        if times.get(i):
            row.solve = statistics.median(pair[0] for pair in times[i])
            row.gradient = statistics.median(pair[1] for pair in times[i])
    _compare(rows, times)


def _compare(rows, times):
    """Medians over the turns of the ratios to ours, which had its turn beside."""
    ours = next((i for i, row in enumerate(rows) if row.contender == "onestep" and times.get(i)), None)
    if ours is None:
        return
    for i, row in enumerate(rows):
        if row.contender == "onestep" or not times.get(i):
            continue
        ratios = [statistics.median(theirs[k] / mine[k] for theirs, mine in zip(times[i], times[ours])) for k in (0, 1)]
        row.over_ours = (ratios[0], ratios[1] if row.gradient_error < WRONG_GRADIENT else None)


def run(options):
    from peer import contenders_jax

    rows = []
    for problem, sizes in SIZES.items():
        for size in sizes:
            if options.quick and size not in QUICK:
                continue
            some = [Row(problem, size, *name, version=version_of(name[0])) for name in contenders_jax.CONTENDERS[problem]]
            chosen = [row for row in some if row.contender == "onestep" or not options.peer or row.contender in options.peer]
            if not any(options.filter in f"{row.problem} {size_text(row.size)} {row.name()}" for row in chosen):
                continue
            run_size(chosen, options)
            rows += chosen
    if not rows:
        sys.exit(f"peers: no row contains \"{options.filter}\"")
    _show(rows)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2) + "\n")
    if options.write:
        report.write(options.write, "jax", _markdown(rows))


def _text(ratio):
    return "-" if ratio is None else f"{ratio:.2f}"


def _over_ours(row):
    return f"{_text(row.over_ours[0])}, {_text(row.over_ours[1])}" if row.contender != "onestep" else ""


def _verdict(rows):
    """A sentence about all ratios, and whether the bars hold; nothing where no peer has a row."""
    ratios = [ratio for row in rows for ratio in row.over_ours if ratio is not None]
    if not ratios:
        return ""
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    held = "pass" if mean >= GEOMETRIC_MEAN and min(ratios) >= LEAST else "FAIL"
    return (f"{len(ratios)} ratios, geometric mean {mean:.2f} (at least {GEOMETRIC_MEAN:g}), least {min(ratios):.2f} "
            f"(at least {LEAST:g}): {held}")


def _versions():
    return ", ".join(f"{name} {version_of(name)}" for name in ["onestep", *PACKAGES, "jaxlib"] if version_of(name))


def _show(rows):
    for problem in dict.fromkeys(row.problem for row in rows):
        print(f"\n{HEADINGS[problem]}")
        print(f"{'size':<16}{'contender':<24}{'solve':>9}{'+ gradient':>12}{'over ours':>16}{'error of x':>12}"
              f"{'of gradient':>13}")
        for row in (row for row in rows if row.problem == problem):
            print(f"{size_text(row.size):<16}{row.name():<24}{seconds(row.solve):>9}{seconds(row.gradient):>12}"
                  f"{_over_ours(row):>16}{amount(row.error):>12}{amount(row.gradient_error):>13}  {row.reason}".rstrip())
    print(f"\n{_verdict(rows)}\n{_versions()}")


INTRODUCTION = """`bench/peers --suite jax --write docs/benchmarks.md` wrote this part. All contenders are called from functions that
JAX has compiled, with arrays of JAX going in and out, in double precision. Times are medians over turns that alternate. "Over
ours" has two ratios to the first row of ours, of the solve and of the solve with its gradient, each a median over the turns;
errors are relative to the largest entry of x, and of the gradient."""


def _markdown(rows):
    from peer import contenders_jax

    said = f"## From compiled functions of JAX\n\n{paragraph(INTRODUCTION)}\n{report.measured(_versions())}"
    for problem in dict.fromkeys(row.problem for row in rows):
        some = [row for row in rows if row.problem == problem]
        lines = [[size_text(row.size), row.contender, f"{row.method} ({row.reason})" if row.reason else row.method,
                  seconds(row.solve), seconds(row.gradient), _over_ours(row), amount(row.error), amount(row.gradient_error)]
                 for row in some]
        columns = ["size", "contender", "method", "solve", "solve + gradient", "over ours", "error of x", "of gradient"]
        said += f"\n### {HEADINGS[problem][0].upper()}{HEADINGS[problem][1:]}\n\n{report.markdown_table(columns, lines, left=3)}\n"
        shown = {(row.contender, row.method) for row in some}
        about = contenders_jax.CONTENDERS[problem]
        said += "".join(paragraph(f"{' '.join(name)}: {about[name][1]}.", "- ") for name in about if name in shown)
    return said + "\n" + paragraph(_verdict(rows) + ".")
