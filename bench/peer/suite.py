"""The suite peers: ours and theirs on the same problems, from data that ours writes and theirs read. Contenders of one size
stay for all turns and take them one after another; what is shown is the median over the turns."""
import dataclasses
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from peer import report
from peer.environment import BUILD, ROOT, SCRIPT, progress, version_of
from peer.report import size_text
from peer.turns import Worker, median_seconds, seconds_of_calls

OURS = BUILD / "onestep_peer"
PACKAGES = ["numpy", "jax", "jaxopt", "optimistix", "casadi", "piqp", "proxsuite", "cvxpylayers"]
PEERS = ["jax", "jaxopt", "optimistix", "casadi", "piqp", "proxqp", "cvxpylayers", "qpth"]
DISTRIBUTIONS = {"proxqp": "proxsuite"}
TURNS, SECONDS_OF_TURNS = 5, 15.0


@dataclasses.dataclass(frozen=True)
class Problem:
    name: str
    files: tuple
    sizes: tuple
    sources: tuple  # where what users write is counted

    def parameters(self, size):
        """That describe the problem, as the paper counts them."""
        if self.name == "logistic":
            N, n = size
            return (n + 1) * N
        n, m, p = size
        return (n + 1) * (n + m + p)

    def contenders(self):
        if self.name == "logistic":
            from peer.logistic import CONTENDERS
        else:
            from peer.programs import CONTENDERS
        ours = {("onestep", method): (None, OPTIONS[self.name]) for method in ("one-step", "implicit", "unrolled")}
        return ours | CONTENDERS

    def reference(self, data):
        """x, the gradient, and what else there is to say about the problem."""
        from peer import reference

        if self.name == "logistic":
            return *reference.logistic(*data), ""
        x, gradient, margin = reference.program(*data)
        return x, gradient, f"the least slack or multiplier that is not zero is {margin:.1e}."


PROBLEMS = {
    "logistic": Problem("logistic", ("A", "y", "w"), ((200, 5), (1000, 10), (1000, 100), (10000, 100)),
                        ("ours.cpp", "logistic.py")),
    "qp": Problem("qp", ("Q", "q", "A", "b", "G", "h"), ((10, 4, 10), (50, 20, 50), (100, 40, 100), (300, 100, 300)),
                  ("ours.cpp", "programs.py", "programs_jax.py")),
}
# When ours stops.
OPTIONS = {
    "logistic": "Newton's method with its default options, until a step is below 1e-10 of x",
    "qp": "the interior point method with its default options, to residuals and a gap of 1e-9",
}
QUICK = {(200, 5), (1000, 10), (10, 4, 10), (50, 20, 50)}


@dataclasses.dataclass
class Row:
    """One contender on one problem; `gradient` is the solve with the gradient. Seconds; None where there is none."""

    suite: str
    problem: str
    size: tuple
    parameters: int
    contender: str
    method: str
    solve: float | None = None
    gradient: float | None = None
    compile: float | None = None
    error: float | None = None
    lines: int = 0
    version: str = ""
    reason: str = ""

    def name(self):
        return f"{self.contender} {self.method}"


def lines_written(problem, contender, method):
    """Lines between `user: begin NAMES` and `user: end`, where NAMES has this contender, or it with this method. Imports,
    comments and blank lines do not count; `qp: NAMES` is for that problem alone."""
    count = 0
    for source in problem.sources:
        inside = False
        for line in (ROOT / "bench" / "peer" / source).read_text().splitlines():
            text = line.strip()
            if begin := re.fullmatch(r"(?:#|//) user: begin (?:(\w+): )?(.*)", text):
                names = begin[2].split(", ")
                inside = begin[1] in (None, problem.name) and (contender in names or f"{contender} {method}" in names)
            elif re.fullmatch(r"(?:#|//) user: end", text):
                inside = False
            elif inside and text and not text.startswith(("#", "//", "import ", "from ")):
                count += 1
    return count


# ---- a contender's process ----


def worker(problem, contender, method, folder, torch):
    """Writes x and the gradient, says how long the first call took, and then takes a turn for each line it reads."""
    import numpy as np

    if torch:
        sys.path.append(torch)
    problem = PROBLEMS[problem]
    data = [np.load(pathlib.Path(folder, f"{name}.npy")) for name in problem.files]
    entries = lambda array: np.asarray(array.tolist() if hasattr(array, "tolist") else array)
    make, _ = problem.contenders()[contender, method]
    begin = time.perf_counter()
    solve, gradient = make(*data)
    found = gradient() if gradient else solve()
    first = time.perf_counter() - begin
    out = pathlib.Path(folder, "out")
    for i, part in enumerate(found if gradient else []):
        np.save(out / f"gradient{i}.npy", entries(part))
    np.save(out / "x.npy", np.ravel(entries(solve())))
    solving, both = seconds_of_calls(solve), gradient and seconds_of_calls(gradient)
    print("ready", first, flush=True)

    for _ in sys.stdin:
        print(median_seconds(solving, 0.1), median_seconds(both) if both else "nan", flush=True)


# ---- all contenders of a size ----


def command_of(row, folder, torch):
    if row.contender == "onestep":
        return [OURS, "turns", folder / "out", row.method, row.problem, *map(str, row.size)]
    return [sys.executable, SCRIPT, "--worker", "peers", row.problem, row.contender, row.method, str(folder), torch]


def error_of(folder, x, gradient):
    """Of the gradient that a contender has written; None where it wrote none."""
    import numpy as np
    from peer import reference

    wrong = reference.error([np.load(folder / "x.npy")], [x])
    if not wrong < 1e-2:
        raise RuntimeError(f"failed: its x is wrong by {wrong:.1e}")
    files = sorted(folder.glob("gradient*.npy"))
    error = reference.error([np.load(file) for file in files], gradient) if files else None
    if error is not None and not math.isfinite(error):
        raise RuntimeError("failed: its gradient is not finite")
    return error


def run_size(problem, size, rows, options):
    """Fills in the rows, and returns what is to be said about the problem."""
    import numpy as np

    workers, times, spent = {}, {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "out").mkdir()
        subprocess.run([OURS, "data", folder, problem.name, *map(str, size)], check=True)
        x, gradient, note = problem.reference([np.load(folder / f"{name}.npy") for name in problem.files])
        try:
            for i, row in enumerate(rows):
                if row.reason:
                    continue
                progress(f"{problem.name} {size_text(size)}: {row.name()} makes ready")
                for old in (folder / "out").iterdir():
                    old.unlink()
                try:
                    # Threads of OpenBLAS, which JAX takes LAPACK from, get in the way of XLA's own.
                    threads = {} if row.contender == "onestep" else {"OPENBLAS_NUM_THREADS": "1"}
                    workers[i] = Worker(command_of(row, folder, options.torch), options.limit, threads)
                    row.compile = float(workers[i].ready.split()[1])
                    row.error = error_of(folder / "out", x, gradient)
                    times[i], spent[i] = [], 0.0
                except RuntimeError as problem_of_it:
                    row.reason = str(problem_of_it)
                    if i in workers:
                        workers.pop(i).close()
            for turn in range(1 if options.quick else TURNS):
                for i in list(workers):
                    if spent[i] > SECONDS_OF_TURNS:
                        continue
                    progress(f"{problem.name} {size_text(size)}: turn {turn + 1} of {rows[i].name()}")
                    begin = time.perf_counter()
                    try:
                        times[i].append(tuple(map(float, workers[i].turn().split())))
                    except RuntimeError as problem_of_it:
                        rows[i].reason = str(problem_of_it)
                        workers.pop(i).close()
                        continue
                    spent[i] += time.perf_counter() - begin
                    time.sleep(0.03)  # threads that still spin
        finally:
            for one in workers.values():
                one.close()
    for i, row in enumerate(rows):
        if row.reason or not times.get(i):
            row.compile = None
            continue
        row.solve = statistics.median(pair[0] for pair in times[i])
        with_gradient = statistics.median(pair[1] for pair in times[i])
        row.gradient = None if with_gradient != with_gradient else with_gradient
        row.compile = max(0.0, row.compile - (row.gradient or row.solve))
    progress("")
    return note


def wanted_rows(problem, size, options, over):
    """`over` has the contenders that ran over the limit at a smaller size, and there."""
    rows = []
    for contender, method in problem.contenders():
        row = Row("peers", problem.name, size, problem.parameters(size), contender, method)
        row.lines = lines_written(problem, contender, method)
        row.version = version_of(DISTRIBUTIONS.get(contender, contender))
        text = f"{problem.name} {size_text(size)} {row.name()}"
        # Ours is there with any of theirs, for the ratio.
        if contender != "onestep":
            if options.peer and contender not in options.peer:
                continue
            if options.filter not in text:
                continue
            if contender == "qpth" and not options.torch:
                continue
        if before := over.get((contender, method)):
            row.reason = f"left out: over the limit of {options.limit:g} s at {size_text(before)}"
        rows.append(row)
    return rows if any(options.filter in f"{problem.name} {size_text(size)} {row.name()}" for row in rows) else []


def run(options):
    for file in filter(None, (options.json, options.write)):
        if not pathlib.Path(file).resolve().parent.is_dir():
            sys.exit(f"peers: cannot write {file}: its folder is not there")
    if not OURS.exists():
        sys.exit("peers: build/release/onestep_peer is not there; ./run bench peers builds it")
    notes = []
    if not options.torch:
        notes.append("qpth is left out: it needs PyTorch, which is not installed here.")
    elif not version_of("qpth"):
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "qpth"], check=False)
    tables, rows = [], []
    for problem in PROBLEMS.values():
        over, sizes = {}, []
        for size in problem.sizes:
            if options.quick and size not in QUICK:
                continue
            some = wanted_rows(problem, size, options, over)
            if not some:
                continue
            note = run_size(problem, size, some, options)
            if note:
                sizes.append(f"{size_text(size)}: {note}")
            over |= {(r.contender, r.method): size for r in some if r.reason.startswith("skipped")}
            rows += some
            print(report.text_table(problem, size, some), flush=True)
        mine = [row for row in rows if row.problem == problem.name]
        if mine:
            tables.append(report.Table(problem, mine, sizes))
    if not rows:
        sys.exit(f"peers: no row contains \"{options.filter}\"")
    print(report.endnotes(tables, notes))
    if options.json:
        with_gaps = [{k: v for k, v in dataclasses.asdict(row).items() if k != "reason" or v} for row in rows]
        pathlib.Path(options.json).write_text(json.dumps(with_gaps, indent=1) + "\n")
    if options.write:
        report.write(options.write, "peers", report.markdown(tables, notes))
