"""Rows of the suites of `onestep_bench`, and peers that do the same: the table of `bench/peers`."""
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from peer.environment import BUILD, SCRIPT, make_environment, name_of, progress
from peer.turns import Worker, median_seconds, seconds_of_call, seconds_of_calls

BENCH = BUILD / "onestep_bench"
PACKAGES = ["numpy", "jax", "casadi", "piqp", "proxsuite", "jaxopt", "scikit-learn", "moreau==0.4.1"]
PEERS = ["jax", "casadi", "piqp", "proxqp", "jaxopt", "scikit-learn", "moreau"]
SIZES = [(200, 5), (1000, 10), (10000, 100), (10000, 300), (20000, 1000)]
CHAIN = 1000000

SOLVE_SIZES = [(200, 5), (1000, 10), (1000, 100), (10000, 100), (10000, 300), (20000, 1000)]
NAMES = [package.split("==")[0] for package in PACKAGES]
BATCHES = [(100, 40, 100, 128), (50, 20, 50, 1024), (20, 8, 20, 4096)]
QP_SIZES = [(5, 2, 5), (10, 4, 10), (50, 20, 50), (100, 40, 100), (300, 100, 300), (1000, 300, 1000)]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row of ours and a peer that does the same. The bar is on ours/theirs, at most; None: only reported."""

    suite: str
    row: str
    peer: str
    way: str  # how the peer does it, where it has several
    kind: str
    size: tuple
    unit: str
    bar: float | None = None


def entries():
    for N, n in SIZES:
        unit = "us" if n < 100 else "ms"
        for peer in ("jax", "casadi"):
            yield Entry("engine", f"newton step N={N} n={n}", peer, "", "step", (N, n), unit)
            yield Entry("engine", f"step + vjp over step N={N} n={n}", peer, "", "vjp", (N, n), unit)
    for peer in ("jax", "casadi"):
        yield Entry("engine", f"elementwise chain of 8 on {CHAIN}", peer, "", "chain", (CHAIN,), "ms")
    for N, n in SOLVE_SIZES:
        unit = "us" if n < 100 else "ms"
        for way in ("jax.hessian", "gram"):
            yield Entry("solve", f"newton solve ({N},{n})", "jax", way, "solve", (N, n), unit, 1 / 2)
        for way, bar in (("jax.hessian", 1 / 2.5), ("gram", 1 / 2.5), ("by hand", None)):
            row = f"newton solve + one-step over solve ({N},{n})"
            yield Entry("solve", row, "jax", way, "solve + one-step", (N, n), unit, bar)
    yield Entry("solve", "newton first answer and gradient (200,5)", "jax", "gram", "first answer", (200, 5), "us", 0.01)
    for n, m, p in QP_SIZES:
        unit, text = "us" if n < 100 else "ms", f"({n},{m},{p})"
        yield Entry("solve", f"qp solve {text}", "piqp", "", "solve", (n, m, p), unit, 0.8 if n == 1000 else 1.0)
        yield Entry("solve", f"qp solve {text}", "proxqp", "", "solve", (n, m, p), unit)
        for estimator in ("one-step", "implicit"):
            yield Entry("solve", f"qp {estimator} backward by all data {text}", "proxqp", "", "backward", (n, m, p), unit,
                        1 / 5 if n >= 50 else None)
    for n, m, p, count in BATCHES:
        text = f"({n},{m},{p}) x {count}"
        yield Entry("solve", f"qp many {text}", "moreau", "auto", "solve", (n, m, p, count), "ms", 0.6 if n == 100 else 1.0)
        yield Entry("solve", f"qp many, backward by all data {text}", "moreau", "auto", "backward", (n, m, p, count), "ms",
                    0.1)
    yield Entry("solve", "qp Maros-Meszaros, geometric mean", "piqp", "", "collection", (), "ms", 1.0)
    step = "hypergradient step over its inner solve"
    for peer, way in (("jax", "custom_vjp"), ("jaxopt", "custom_root")):
        yield Entry("jobs", f"{step} {name_of('a9a')} (32561,123), 123 hyperparameters", peer, way, "penalties", (), "ms",
                    1 / 4)
    for peer, way in (("jax", "newton-cg"), ("jax", "newton-cg, Jacobi"), ("jaxopt", "LBFGS")):
        row = f"hypergradient step of clean over its inner solve {name_of('Fashion-MNIST')} (5000,785,10)"
        yield Entry("jobs", row, peer, way, "weights", (), "ms", 1 / 3)
    for which, size in (("a9a", (32561, 123)), ("ijcnn1", (49990, 22)), ("made", (10000, 100))):
        for loss, ways in (("logistic", ("newton-cholesky", "lbfgs", "lbfgs, tol and max_iter by default")),
                           ("ridge", ("Ridge",))):
            for way in ways:
                row = f"fit {loss} {name_of(which)} ({size[0]},{size[1]})"
                yield Entry("jobs", row, "scikit-learn", way, f"{loss} {which}", size, "ms", None if "," in way else 1.0)


def job_of(entry, target):
    """Work of the suite jobs, and the norm of the gradient where it ends, if that is compared."""
    from peer.rows_jobs import jax_penalties, jax_weights, sklearn_fit

    if entry.kind == "penalties":
        return jax_penalties(entry.way)
    if entry.kind == "weights":
        return jax_weights(entry.way)
    return sklearn_fit(entry.way, *entry.kind.split(), target)


def worker(index, target=None):
    """Makes ready, and then takes a turn for each line it reads: the median of some measurements. `target` is the norm of
    the gradient where ours ends."""
    entry, reached = list(entries())[int(index)], None
    if entry.suite == "jobs":
        work, reached = job_of(entry, float(target) if target else None)
    elif entry.suite == "solve" and entry.peer in ("piqp", "proxqp", "moreau"):
        from peer.rows_qp import moreau_seconds, piqp_collection, piqp_seconds, proxqp_seconds
    else:
        from peer.rows_newton import casadi_work, jax_solve, jax_work

    if entry.suite == "jobs":
        measure = seconds_of_call(work) if entry.kind == "weights" else seconds_of_calls(work)
    elif entry.kind == "collection":
        measure = piqp_collection()
    elif entry.peer == "piqp":
        measure = piqp_seconds(entry.kind, *entry.size)
    elif entry.peer == "moreau":
        measure = moreau_seconds(entry.kind, *entry.size)
    elif entry.peer == "proxqp":
        measure = proxqp_seconds(entry.kind, *entry.size)
    elif entry.kind == "first answer":
        measure = seconds_of_call(jax_solve(entry.way, entry.kind, *entry.size))
    elif entry.suite == "solve":
        measure = seconds_of_calls(jax_solve(entry.way, entry.kind, *entry.size))
    else:
        N, n = entry.size if len(entry.size) == 2 else (*entry.size, 0)
        measure = seconds_of_calls({"jax": jax_work, "casadi": casadi_work}[entry.peer](entry.kind, N, n))
    print("ready", "" if reached is None else reached, flush=True)
    for _ in sys.stdin:
        print(json.dumps(median_seconds(measure)), flush=True)


def our_turn(entry):
    """What onestep_bench measures for the row just now, in the row's unit, and the norm of the gradient where it ends."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        done = subprocess.run([BENCH, entry.suite, "--filter", entry.row, "--quick", "--json", file.name],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"onestep_bench: {done.stderr.strip()[:100]}")
        rows = json.loads(pathlib.Path(file.name).read_text())
    return next(((row["ours"], row.get("gradient")) for row in rows if row["row"] == entry.row), (None, None))


@dataclasses.dataclass
class Measured:
    """Medians over the turns, in the unit of the row, and the norms of the gradients where solves ended; or why there are
    none."""

    ours: float | None
    theirs: float | None = None
    ratio: float | None = None
    gradients: tuple = (None, None)
    reason: str = ""

    def remark(self):
        ours, theirs = self.gradients
        return self.reason or ("" if None in self.gradients else f"gradient {ours:.1e}, theirs {theirs:.1e}")


def run_row(python, index, entry, options, known):
    ours, theirs, start, peer = [], [], time.perf_counter(), None
    try:
        # Ours goes first: a peer may have to get as far.
        first, target = our_turn(entry) if BENCH.exists() else (None, None)
        peer = Worker([python, SCRIPT, "--worker", "rows", str(index), *([] if target is None else [str(target)])],
                      options.limit)
        reached = [float(word) for word in peer.ready.split()[1:]]
        while len(theirs) < (1 if options.quick else 5):
            if BENCH.exists():
                ours.append(our_turn(entry)[0] if theirs else first)
            theirs.append(float(peer.turn()) * (1e6 if entry.unit == "us" else 1e3))
            if len(theirs) >= 3 and time.perf_counter() - start > 60:
                break
    except RuntimeError as problem:
        return Measured(known, reason=str(problem))
    finally:
        if peer:
            peer.close()
    gradients = (target, reached[0] if reached else None)
    if None in ours or not ours:
        ours = [known] * len(theirs)
    if None in ours:
        return Measured(None, statistics.median(theirs), gradients=gradients)
    return Measured(statistics.median(ours), statistics.median(theirs),
                    statistics.median(mine / other for mine, other in zip(ours, theirs)), gradients)


def read_rows(file):
    if not file or not pathlib.Path(file).exists() or not pathlib.Path(file).read_text().strip():
        return []
    try:
        return json.loads(pathlib.Path(file).read_text())
    except (OSError, json.JSONDecodeError) as problem:
        sys.exit(f"peers: {file} is not a JSON list of rows: {problem}")


def number(value):
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def run(options):
    python = make_environment(PACKAGES)
    rows = read_rows(options.json)
    known = {row["row"]: row["ours"] for row in rows if "peer" not in row}
    lines = []
    for index, entry in enumerate(entries()):
        if options.filter not in entry.row or (options.peer and entry.peer not in options.peer):
            continue
        if options.suite and entry.suite != options.suite:
            continue
        name = f"{entry.peer} ({entry.way})" if entry.way else entry.peer
        progress(f"{entry.row}, {name}")
        found = run_row(python, index, entry, options, known.get(entry.row))
        held = None if entry.bar is None else found.ratio is not None and found.ratio <= entry.bar
        lines.append((entry, name, found, held))
        if found.theirs is not None:
            row = {"suite": entry.suite, "row": entry.row, "peer": name, "ours": found.ours, "floor": found.theirs,
                   "ratio": found.ratio, "unit": entry.unit} | ({} if held is None else {"holds": held})
            if None not in found.gradients:
                row |= dict(zip(("gradient", "peer_gradient"), found.gradients))
            rows = [old for old in rows if (old["row"], old.get("peer")) != (entry.row, name)] + [row]
        progress("")
    if not lines:
        sys.exit(f"peers: no row contains \"{options.filter}\"")

    width, peer_width = max(len(line[0].row) for line in lines), max(len(line[1]) for line in lines)
    for suite in dict.fromkeys(line[0].suite for line in lines):
        print(f"{suite:<{width}}  {'peer':<{peer_width}}  {'ours':>9}  {'theirs':>9}  {'ratio':>7}  {'bar':>8}        unit")
        for entry, name, found, held in lines:
            if entry.suite == suite:
                bar = "-" if entry.bar is None else f"<= {entry.bar:g}"
                word = "" if held is None else "pass" if held else "FAIL"
                print(f"{entry.row:<{width}}  {name:<{peer_width}}  {number(found.ours):>9}  {number(found.theirs):>9}  "
                      f"{number(found.ratio):>7}  {bar:>8}  {word:<4}  {entry.unit}  {found.remark()}".rstrip())
    bars = [line[3] for line in lines if line[3] is not None]
    print(f"{sum(bars)} of {len(bars)} bars hold")
    versions = subprocess.run([python, "-m", "pip", "list", "--format=json"], capture_output=True, text=True).stdout
    print(", ".join(f"{p['name']} {p['version']}" for p in json.loads(versions or "[]") if p["name"] in NAMES))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")
