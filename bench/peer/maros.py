"""The suite maros: small programs of Maros and Meszaros, solved through qpsolvers by ours and by theirs. Each contender is a
process that stays; problem by problem they take turns. What is shown is the median over the turns of each time, and errors
that are computed here, by one definition for all."""
import csv
import dataclasses
import importlib.util
import json
import math
import pathlib
import statistics
import sys
import tempfile
import time

from peer import maros_report, report
from peer.environment import DATA, ROOT, SCRIPT, progress, version_of
from peer.turns import Worker, median_seconds

PACKAGES = ["numpy", "scipy", "qpsolvers", "piqp", "proxsuite", "clarabel", "osqp"]
DISTRIBUTIONS = {"proxqp": "proxsuite"}
FOLDER = DATA / "maros_meszaros"
ACCURACIES = (1e-6, 1e-9)
TURNS, LIMIT = 5, 10.0
LONG = 1.0  # seconds; what takes longer has one turn

# ---- what each is asked for, in its own words ----


def piqp_options(eps):
    gap = {"check_duality_gap": True, "eps_duality_gap_abs": eps, "eps_duality_gap_rel": eps}
    return {"eps_abs": eps, "eps_rel": eps, **gap}


def proxqp_options(eps):
    return {**piqp_options(eps), "max_iter": 10_000}


def clarabel_options(eps):
    return {"tol_feas": eps, "tol_gap_abs": eps, "tol_gap_rel": eps, "time_limit": LIMIT, "max_threads": 1}


def osqp_options(eps):
    return {"eps_abs": eps, "eps_rel": eps, "max_iter": 10_000_000, "time_limit": LIMIT, "polishing": True}


# The solver of qpsolvers, the matrices it is given, and how it is asked for an accuracy.
CONTENDERS = {
    "onestep": ("onestep", "dense", lambda eps: {"tolerance": eps}, "dense, until the last step is short, too"),
    "onestep residuals": ("onestep", "dense", lambda eps: {"tolerance": eps, "short_steps": False},
                          "dense, short_steps=False: until residuals and gap are small, as all others"),
    "piqp dense": ("piqp", "dense", piqp_options, "DenseSolver, with the duality gap checked"),
    "piqp sparse": ("piqp", "sparse", piqp_options, "SparseSolver, with the duality gap checked"),
    "proxqp": ("proxqp", "dense", proxqp_options, "the dense backend, with the duality gap checked"),
    "clarabel": ("clarabel", "sparse", clarabel_options, "sparse"),
    "osqp": ("osqp", "sparse", osqp_options, "sparse, with polishing and no limit of iterations"),
}
PEERS = ["piqp", "proxqp", "clarabel", "osqp"]


@dataclasses.dataclass
class Row:
    """One contender on one problem, asked for one accuracy. Errors are NaN where it returned no point."""

    problem: str
    contender: str
    asked: float
    seconds: float | None = None
    found: bool = False
    primal: float = math.nan
    dual: float = math.nan
    gap: float = math.nan
    objective: float = math.nan
    reason: str = ""

    @property
    def error(self):
        parts = (self.primal, self.dual, self.gap)
        return math.nan if any(part != part for part in parts) else max(parts)

    def is_solved(self, accuracy):
        return self.found and self.error <= accuracy


@dataclasses.dataclass(frozen=True)
class Problem:
    name: str
    variables: int
    equalities: int
    inequalities: int
    optimum: float  # as published


# ---- the problems, and the errors of their solutions ----


def cpu_seconds_of(work):
    """Of this process: others on the machine do not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def rows_of(file):
    """P, q, G, h, A, b, lb, ub of qpsolvers, whose rows have one bound each."""
    import numpy as np

    p = file.problem
    n = len(file.columns)
    whole = lambda name, size, without: np.broadcast_to(np.asarray(p.get(name, without), float), size).copy()
    G, A = p.get("G", np.zeros((0, n))), p.get("A", np.zeros((0, n)))
    low, high = whole("l", len(G), -np.inf), whole("u", len(G), np.inf)
    above, below = np.isfinite(high), np.isfinite(low)
    return {
        "P": np.asarray(p.get("Q", np.zeros((n, n)))), "q": whole("q", n, 0.0),
        "G": np.vstack([G[above], -G[below]]), "h": np.concatenate([high[above], -low[below]]),
        "A": np.asarray(A), "b": whole("b", len(A), 0.0),
        "lb": whole("lo", n, -np.inf), "ub": whole("hi", n, np.inf), "constant": np.array(p.get("constant", 0.0)),
    }


def errors(d, x, y, z, z_box):
    """Primal and dual residual and gap, each over 1 and the largest of its terms. Multipliers that have the wrong sign, or
    belong to a bound that is not there, are set to zero first, so that they count in the dual residual."""
    import numpy as np

    largest = lambda *arrays: max((float(np.max(np.abs(a), initial=0.0)) for a in arrays), default=0.0)
    z, z_box = np.maximum(z, 0.0), np.where(np.isfinite(d["ub"]), z_box, np.minimum(z_box, 0.0))
    z_box = np.where(np.isfinite(d["lb"]), z_box, np.maximum(z_box, 0.0))
    lb, ub = np.where(np.isfinite(d["lb"]), d["lb"], 0.0), np.where(np.isfinite(d["ub"]), d["ub"], 0.0)
    Ax, Gx, Px = d["A"] @ x, d["G"] @ x, d["P"] @ x
    violations = [largest(Ax - d["b"]), *(float(np.max(v, initial=0.0)) for v in (Gx - d["h"], d["lb"] - x, x - d["ub"]))]
    primal = max(violations) / (1 + largest(Ax, d["b"], Gx, d["h"], x, lb, ub))
    sums = [Px, d["q"], d["A"].T @ y, d["G"].T @ z, z_box]
    dual = largest(sum(sums)) / (1 + largest(*sums))
    products = [x @ Px, d["q"] @ x, d["b"] @ y, d["h"] @ z, lb @ np.minimum(z_box, 0.0), ub @ np.maximum(z_box, 0.0)]
    gap = abs(sum(products)) / (1 + max(map(abs, products)))
    return float(primal), float(dual), float(gap)


def selftest():
    """The errors of an exact solution, and of the same with one thing wrong."""
    import numpy as np

    # Nearest to (-1, 3, 0.5) in x1 + x2 = 1, x1 - x2 <= -0.5, -0.5 <= x1, with nothing said of x3.
    d = {"P": np.diag([1.0, 1.0, 2.0]), "q": np.array([1.0, -3.0, -1.0]), "G": np.array([[1.0, -1.0, 0.0]]),
         "h": np.array([-0.5]), "A": np.array([[1.0, 1.0, 0.0]]), "b": np.array([1.0]),
         "lb": np.array([-0.5, -np.inf, -np.inf]), "ub": np.full(3, np.inf)}
    x, y, z, z_box = np.array([-0.5, 1.5, 0.5]), np.array([1.5]), np.zeros(1), np.array([-2.0, 0.0, 0.0])
    cases = {
        "exact": (x, y, z, z_box), "x": (x + 0.1, y, z, z_box), "y": (x, -y, z, z_box), "z": (x, y, z - 1.0, z_box),
        "sign": (x, y, z, -z_box), "absent bound": (x, y, z, z_box + np.array([0.0, 1.0, 0.0])),
    }
    for name, case in cases.items():
        error = max(errors(d, *case))
        good = error < 1e-15 if name in ("exact", "z", "absent bound") else error > 1e-2
        if not good:
            sys.exit(f"peers: maros selftest: {name}: error {error:.1e}")


# ---- a contender's process ----


def worker(name, folder, package):
    """Solves the problem that a line names, to the accuracy that it names, and answers with the time and whether the solver
    says that it was solved. What it found is written where it was not found before."""
    import warnings

    import numpy as np

    sys.path.append(package)
    import qpsolvers
    import scipy.sparse

    solver, matrices, options, _ = CONTENDERS[name]
    if solver == "onestep":
        import onestep.qpsolvers

        onestep.set_threads(1)
    warnings.simplefilter("ignore")
    folder = pathlib.Path(folder)
    problems = {}

    def problem_of(file):
        d = np.load(folder / f"{file}.npz")
        matrix = scipy.sparse.csc_matrix if matrices == "sparse" else np.asarray
        given = {key: (matrix(d[key]) if key in "PGA" else d[key]) for key in ("P", "q", "G", "h", "A", "b", "lb", "ub")}
        for key, vector in (("G", "h"), ("A", "b")):
            if not given[vector].size:
                given[key] = given[vector] = None
        if not (np.isfinite(given["lb"]).any() or np.isfinite(given["ub"]).any()):
            given["lb"] = given["ub"] = None
        return qpsolvers.Problem(**given)

    print("ready", flush=True)
    for line in sys.stdin:
        file, eps = line.split()
        if file not in problems:
            problems = {file: problem_of(file)}
        solve = lambda: qpsolvers.solve_problem(problems[file], solver, **options(float(eps)))
        begin = time.process_time()
        try:
            s = solve()
        except Exception as problem:  # of a solver, whatever it is
            print("failed", " ".join(f"{type(problem).__name__}: {problem}".split())[:80], flush=True)
            continue
        first = time.process_time() - begin
        out = folder / "out" / f"{name}-{file}-{eps}.npz"
        if s.x is not None and not out.exists():
            d, n = np.load(folder / f"{file}.npz"), len(s.x)
            parts = {}
            for key, size in (("y", d["b"].size), ("z", d["h"].size), ("z_box", n)):
                part = np.ravel(np.asarray([] if getattr(s, key) is None else getattr(s, key), float))
                parts[key] = part if part.size else np.zeros(size)
            np.savez(out, x=s.x, **parts)
        seconds = first if first > LONG else median_seconds(lambda: cpu_seconds_of(solve), 0.05)
        print(seconds, int(bool(s.found)), flush=True)


# ---- all contenders ----


def package_folder():
    """Where the Python package of ours is: on the path, or where ./run python installed it."""
    found = importlib.util.find_spec("onestep")
    if found and found.origin:
        return str(pathlib.Path(found.origin).parent.parent)
    installed = sorted((ROOT / "build" / "python" / "venv" / "lib").glob("python3.*/site-packages/onestep/__init__.py"))
    if not installed:
        sys.exit("peers: the Python package of ours is not there; ./run python installs it into build/python/venv")
    return str(installed[-1].parent.parent)


def read_problems(folder, options):
    """Writes the arrays of each problem, and returns the problems, small ones first."""
    import numpy as np
    import onestep

    with open(FOLDER / "reference_optima.csv", newline="") as file:
        optima = {row["file"]: float(row["optimum"]) for row in csv.DictReader(file)}
    found = []
    for path in sorted(FOLDER.glob("*.QPS")):
        file = onestep.read_qps(path)
        d = rows_of(file)
        np.savez(folder / f"{path.stem}.npz", **d)
        found.append(Problem(path.stem, d["q"].size, d["b"].size, d["h"].size, optima.get(path.stem, math.nan)))
    found.sort(key=lambda p: (p.variables, p.name))
    if options.quick:
        found = [p for p in found if p.variables <= 150]
    names = [name for name in found if options.filter in name.name]
    return names or found


class Contender:
    """Its process, which is started again after it had to be stopped."""

    def __init__(self, name, folder, package):
        self.name = name
        self.command = [sys.executable, SCRIPT, "--worker", "maros", name, str(folder), package]
        self.process = None

    def ask(self, line, limit):
        if self.process is None:
            self.process = Worker(self.command, limit, {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
        self.process.limit = limit
        try:
            answer = self.process.turn(line)
        except RuntimeError:
            self.close()
            raise
        if answer.startswith("failed"):
            raise RuntimeError(answer)
        seconds, found = answer.split()
        return float(seconds), found == "1"

    def close(self):
        if self.process is not None:
            self.process.close()
        self.process = None


def run_problem(problem, contenders, folder, options):
    import numpy as np

    d = np.load(folder / f"{problem.name}.npz")
    rows = [Row(problem.name, c.name, asked) for asked in ACCURACIES for c in contenders]
    times = {id(row): [] for row in rows}
    for turn in range(1 if options.quick else TURNS):
        for row, contender in zip(rows, list(contenders) * len(ACCURACIES)):
            if row.reason or (turn > 0 and times[id(row)][0] > LONG):
                continue
            progress(f"{problem.name}: turn {turn + 1} of {row.contender} to {row.asked:g}")
            try:
                seconds, row.found = contender.ask(f"{problem.name} {row.asked:g}", 3 * LIMIT)
                times[id(row)].append(seconds)
            except RuntimeError as why:
                row.reason = str(why)
    for row in rows:
        out = folder / "out" / f"{row.contender}-{row.problem}-{row.asked:g}.npz"
        row.seconds = statistics.median(times[id(row)]) if times[id(row)] and not row.reason else None
        if out.exists() and not row.reason:
            s = np.load(out)
            row.primal, row.dual, row.gap = errors(d, s["x"], s["y"], s["z"], s["z_box"])
            row.objective = float(0.5 * s["x"] @ d["P"] @ s["x"] + d["q"] @ s["x"] + d["constant"])
            out.unlink()
    return rows


def run(options):
    for file in filter(None, (options.json, options.write)):
        if not pathlib.Path(file).resolve().parent.is_dir():
            sys.exit(f"peers: cannot write {file}: its folder is not there")
    if not FOLDER.is_dir():
        sys.exit(f"peers: the programs are not there: {FOLDER} (ONESTEP_DATA says where the folder of data is)")
    package = package_folder()
    sys.path.append(package)
    wanted = [name for name, (solver, *_) in CONTENDERS.items()
              if solver == "onestep" or not options.peer or solver in options.peer]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "out").mkdir()
        problems = read_problems(folder, options)
        contenders = [Contender(name, folder, package) for name in wanted]
        try:
            for problem in problems:
                some = run_problem(problem, contenders, folder, options)
                rows += some
                progress("")
                print(maros_report.line(problem, [row for row in some if row.asked == ACCURACIES[-1]]), flush=True)
        finally:
            for contender in contenders:
                contender.close()
    about = {name: CONTENDERS[name][-1] for name in wanted}
    versions = ", ".join(f"{name} {version_of(DISTRIBUTIONS.get(name, name))}"
                         for name in dict.fromkeys(["onestep", *(CONTENDERS[c][0] for c in wanted), "qpsolvers"]))
    print("\n" + maros_report.text(problems, rows, about, ACCURACIES, LIMIT) + f"\n{versions}\n{report.machine()}")
    if options.json:
        named = [{**dataclasses.asdict(row), "error": row.error} for row in rows]
        pathlib.Path(options.json).write_text(json.dumps(named, indent=1) + "\n")
    if options.write:
        report.write(options.write, "maros", maros_report.markdown(problems, rows, about, ACCURACIES, LIMIT, versions))
