"""The suite torch: layers of quadratic programs and equilibrium models, ours and theirs, in the Python that runs it. Contenders
of one size stay for all turns and take them one after another; each is checked before it is timed. What is shown is the median
over the turns."""
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import statistics
import sys
import time
import warnings

from peer import report
from peer.environment import SCRIPT, progress, version_of
from peer.report import amount, paragraph, seconds, size_text
from peer.turns import Worker, median_seconds

PEERS = ["qpth", "qplayer", "moreau", "torchdeq", "autograd"]
DISTRIBUTIONS = {"qplayer": "proxsuite", "autograd": "torch"}
TURNS, ITEMS_CHECKED = 5, 4
SIZES = {
    "qp": ((20, 8, 20, 512), (50, 20, 50, 256), (100, 40, 100, 128)),
    "deq": ((64, 16, 128, 0.9), (256, 32, 64, 0.9), (256, 32, 64, 0.99)),
}
HEADINGS = {
    "qp": "quadratic programs, (n,m,p,batch), double precision, all data of their own",
    "deq": "equilibrium models, (states,inputs,batch,contraction), single precision",
}


@dataclasses.dataclass
class Row:
    """Seconds; the error is of the gradient."""

    suite: str
    problem: str
    size: tuple
    contender: str
    method: str
    version: str
    solve: float | None = None
    gradient: float | None = None
    error: float | None = None
    reason: str = ""

    def name(self):
        return f"{self.contender} {self.method}"


def contenders(problem):
    if problem == "qp":
        from peer.torch_layers import CONTENDERS
    else:
        from peer.torch_models import CONTENDERS
    return CONTENDERS


# ---- a contender's process ----


def worker(problem, size, contender, method):
    """Makes ready, is checked, says the error of its gradient, and then takes a turn for each line it reads."""
    warnings.simplefilter("ignore")
    import torch

    size = tuple(json.loads(size))
    make, _ = contenders(problem)[contender, method]
    prepare = of_programs if problem == "qp" else of_models
    solve, gradient, error = prepare(make, size, torch)
    print("ready", error, flush=True)
    calls = [0]

    def seconds(work):
        calls[0] += 1
        start = time.perf_counter()
        work(calls[0] % 2)
        return time.perf_counter() - start

    for _ in sys.stdin:
        print(median_seconds(lambda: seconds(solve)), median_seconds(lambda: seconds(gradient)), flush=True)


def of_programs(make, size, torch):
    from peer import reference, torch_layers

    layer = make(*size)
    batches = [[torch.from_numpy(part) for part in torch_layers.data_of(*size, which)] for which in (0, 1)]

    def gradient(which):
        parts = [part.clone().requires_grad_() for part in batches[which]]
        x = layer(*parts)
        return x.detach(), torch.autograd.grad(x.square().sum() / 2, parts)

    worst = 0.0
    for which in (0, 1, 0):  # and a peer that keeps what it should not is found
        x, found = gradient(which)
        xs, gradients = torch_layers.reference(size, which, ITEMS_CHECKED)
        for i in range(ITEMS_CHECKED):
            wrong = reference.error([x[i].numpy()], [xs[i]])
            if not wrong < 1e-5:
                raise SystemExit(f"its x is wrong by {wrong:.1e}")
            worst = max(worst, reference.error([part[i].numpy() for part in found], gradients[i]))
    if not worst < 1e-2:
        raise SystemExit(f"its gradient is wrong by {worst:.1e}")

    def solve(which):
        with torch.no_grad():
            return layer(*batches[which])

    return solve, gradient, worst


def of_models(make, size, torch):
    from peer import torch_models

    model = make()
    batches = [[t.float() for t in torch_models.data_of(*size, which)] for which in (0, 1)]

    def gradient(which):
        x, *theta = batches[which]
        theta = [t.clone().requires_grad_() for t in theta]
        z = model(x, *theta)
        return z.detach(), torch.autograd.grad(z.square().sum() / 2 / len(x), theta)

    worst = 0.0
    for which in (0, 1):
        z, found = gradient(which)
        exact, gradients = torch_models.reference(size, which)
        wrong = float((z.double() - exact).norm() / exact.norm())
        if not wrong < 1e-2:
            raise SystemExit(f"its z is wrong by {wrong:.1e}")
        off = math.sqrt(sum(float((a.double() - b).square().sum()) for a, b in zip(found, gradients)))
        worst = max(worst, off / math.sqrt(sum(float(b.square().sum()) for b in gradients)))

    def solve(which):
        with torch.no_grad():
            return model(*batches[which])

    return solve, gradient, worst


# ---- all contenders of a size ----


def run_size(problem, size, rows, options):
    workers, times = {}, {}
    threads = os.environ.get("OMP_NUM_THREADS") or str(os.cpu_count() or 1)
    try:
        for i, row in enumerate(rows):
            progress(f"{problem} {size}: {row.name()} makes ready")
            command = [sys.executable, SCRIPT, "--worker", "torch", problem, json.dumps(size), row.contender, row.method]
            try:
                workers[i] = Worker(command, options.limit, {"OMP_NUM_THREADS": threads})
                row.error, times[i] = float(workers[i].ready.split()[1]), []
            except RuntimeError as problem_of_it:
                row.reason = str(problem_of_it)
        for turn in range(1 if options.quick else TURNS):
            for i in list(workers):
                progress(f"{problem} {size}: turn {turn + 1} of {rows[i].name()}")
                try:
                    times[i].append(tuple(map(float, workers[i].turn().split())))
                except RuntimeError as problem_of_it:
                    rows[i].reason = str(problem_of_it)
                    workers.pop(i).close()
    finally:
        for one in workers.values():
            one.close()
    for i, measured in times.items():
        if measured:
            rows[i].solve, rows[i].gradient = (statistics.median(pair[k] for pair in measured) for k in (0, 1))
    progress("")


def table(problem, size, rows):
    base = next((row.gradient for row in rows if row.contender == "onestep" and row.gradient), None)
    lines = [f"{problem} ({','.join(map(str, size))}): {HEADINGS[problem]}",
             f"  {'contender':<30} {'solve':>10} {'solve + gradient':>17} {'over ours':>10} {'error':>9}"]
    for row in rows:
        if row.gradient is None:
            lines.append(f"  {row.name():<30} {row.reason}")
            continue
        over = f"{row.gradient / base:.2f}" if base else "-"
        lines.append(f"  {row.name():<30} {row.solve * 1e3:>7.2f} ms {row.gradient * 1e3:>14.2f} ms {over:>10} "
                     f"{row.error:>9.1e}")
    return "\n".join(lines) + "\n"


def run(options):
    missing = [name for name in ("numpy", "torch", "onestep") if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"peers: the suite torch needs {', '.join(missing)} in {sys.executable}: pip install torch, and this package")
    all_rows = []
    for problem, sizes in SIZES.items():
        for size in sizes[:1] if options.quick else sizes:
            rows = []
            for contender, method in contenders(problem):
                text = f"{problem} ({','.join(map(str, size))}) {contender} {method}"
                if contender != "onestep" and ((options.peer and contender not in options.peer) or options.filter not in text):
                    continue
                rows.append(Row("torch", problem, size, contender, method,
                                version_of(DISTRIBUTIONS.get(contender, contender))))
            wanted = [row for row in rows if options.filter in f"{problem} ({','.join(map(str, size))}) {row.name()}"]
            if not wanted:
                continue
            run_size(problem, size, rows, options)
            print(table(problem, size, rows), flush=True)
            all_rows += rows
    if not all_rows:
        sys.exit(f"peers: no row contains \"{options.filter}\"")
    for problem in dict.fromkeys(row.problem for row in all_rows):
        for name, (_, about) in contenders(problem).items():
            print(f"{problem}, {' '.join(name)}: {about}")
    print(versions(all_rows))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps([dataclasses.asdict(row) for row in all_rows], indent=1) + "\n")
    if options.write:
        report.write(options.write, "torch", markdown(all_rows))


def versions(rows):
    return ", ".join(sorted({f"{row.contender} {row.version}" for row in rows if row.contender != "autograd"} |
                            {f"torch {version_of('torch')}"}))


INTRODUCTION = """`bench/peers --suite torch --write docs/benchmarks.md` wrote this part, on the CPU. Times are medians over turns
that alternate; each call has other data than the one before. "Over ours" is the ratio of the times with the gradient to the
first row of ours; the error is that of the gradient."""


def markdown(rows):
    said = f"## Layers of PyTorch\n\n{paragraph(INTRODUCTION)}\n{report.measured(versions(rows))}"
    for problem in dict.fromkeys(row.problem for row in rows):
        some, lines = [row for row in rows if row.problem == problem], []
        for row in some:
            base = next((r.gradient for r in some if r.size == row.size and r.contender == "onestep" and r.gradient), None)
            lines.append([size_text(row.size), row.contender, f"{row.method} ({row.reason})" if row.reason else row.method,
                          seconds(row.solve), seconds(row.gradient),
                          f"{row.gradient / base:.2f}" if base and row.gradient else "-", amount(row.error)])
        columns = ["size", "contender", "method", "solve", "solve + gradient", "over ours", "error"]
        said += f"\n### {HEADINGS[problem][0].upper()}{HEADINGS[problem][1:]}\n\n{report.markdown_table(columns, lines, left=3)}\n"
        shown, about = {(row.contender, row.method) for row in some}, contenders(problem)
        said += "".join(paragraph(f"{' '.join(name)}: {about[name][1]}.", "- ") for name in about if name in shown)
    return said
