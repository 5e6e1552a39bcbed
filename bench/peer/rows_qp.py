"""The rows of quadratic programs, in PIQP, ProxQP and Moreau. Each function returns one that returns seconds: by the solvers'
own timers, or by a clock around a single call."""
import statistics
import time

import numpy as np
from peer.data import check, gaussian, qp_data
from peer.environment import DATA


def check_program(n, m, p, x, y, z):
    Q, q, A, b, G, h = qp_data(n, m, p)
    terms = [Q @ x, q, A.T @ y, G.T @ z]
    dual = np.max(np.abs(sum(terms))) / (1 + max(np.max(np.abs(t)) for t in terms))
    primal = max(np.max(np.abs(A @ x - b)), np.max(G @ x - h)) / (1 + max(np.max(np.abs(b)), np.max(np.abs(G @ x))))
    sums = [x @ Q @ x, q @ x, b @ y, h @ z]
    gap = abs(sum(sums)) / (1 + max(map(abs, sums)))
    if not max(dual, primal, gap) <= 2e-9:
        raise SystemExit(f"the solution is wrong: primal {primal:.2g}, dual {dual:.2g}, gap {gap:.2g}")


def piqp_seconds(kind, n, m, p):
    import piqp

    Q, q, A, b, G, h = (np.asfortranarray(part) for part in qp_data(n, m, p))

    def seconds():
        solver = piqp.DenseSolver()
        settings = solver.settings
        settings.eps_abs = settings.eps_rel = settings.eps_duality_gap_abs = settings.eps_duality_gap_rel = 1e-9
        settings.check_duality_gap = settings.compute_timings = True
        solver.setup(Q, q, A, b, G, None, h)
        if solver.solve() != piqp.PIQP_SOLVED:
            raise SystemExit("PIQP did not solve it")
        seconds.result = solver.result
        return solver.result.info.setup_time + solver.result.info.solve_time

    seconds()
    found = seconds.result
    check_program(n, m, p, found.x, found.y, found.z_u)
    return seconds


def read_qps(path):
    """Q, q and the rows and bounds of a file in fixed format: enough for the collection."""
    section, objective, rows, columns, entries, right, ranges, quadratic = "", "", {}, {}, [], {}, {}, []
    low, high = {}, {}
    for line in path.read_text().splitlines():
        if not line.strip() or line[0] == "*":
            continue
        if line[0] != " ":
            section = line.split()[0]
            continue
        kind, name, *rest = (line[a:b].strip() for a, b in ((1, 3), (4, 12), (14, 22), (24, 36), (39, 47), (49, 61)))
        pairs = [(row, float(value)) for row, value in (rest[0:2], rest[2:4]) if row and value]
        if section == "ROWS" and kind == "N":
            objective = objective or name
        elif section == "ROWS":
            rows[name] = kind
        elif section == "COLUMNS":
            entries += [(row, columns.setdefault(name, len(columns)), value) for row, value in pairs]
        elif section == "RHS":
            right |= dict(pairs)
        elif section == "RANGES":
            ranges |= dict(pairs)
        elif section == "QUADOBJ":
            quadratic.append((columns[name], columns[rest[0]], float(rest[1])))
        elif section == "BOUNDS":
            j, value = columns[rest[0]], float(rest[1] or 0)
            if kind in ("LO", "FX"):
                low[j] = value
            if kind in ("UP", "FX"):
                high[j] = value
            if kind in ("FR", "MI") or (kind == "UP" and value < 0 and j not in low):
                low[j] = -np.inf
    index = {name: i for i, name in enumerate(rows)}
    n, m = len(columns), len(rows)
    Q, q, M = np.zeros((n, n)), np.zeros(n), np.zeros((m, n))
    for row, j, value in entries:
        if row == objective:
            q[j] = value
        elif row in index:
            M[index[row], j] = value
    for i, j, value in quadratic:
        Q[i, j] = Q[j, i] = value
    l, u = np.full(m, -np.inf), np.full(m, np.inf)
    for name, kind in rows.items():
        i, b, r = index[name], right.get(name, 0.0), ranges.get(name)
        l[i] = -np.inf if kind == "L" else b
        u[i] = np.inf if kind == "G" else b
        if r is not None and (kind == "L" or (kind == "E" and r < 0)):
            l[i] = b - abs(r)
        elif r is not None:
            u[i] = b + abs(r)
    bounds = [np.array([side.get(j, default) for j in range(n)]) for side, default in ((low, 0.0), (high, np.inf))]
    return Q, q, M, l, u, *bounds


def piqp_collection():
    """The geometric mean over the problems of the medians of PIQP's own times, to 1e-9 absolute."""
    import piqp

    folder = DATA / "maros_meszaros"
    problems = [read_qps(path) for path in sorted(folder.glob("*.QPS"))]
    if not problems:
        raise SystemExit(f"no problems in {folder.name}; ONESTEP_DATA says where the data is")

    def seconds_of(Q, q, M, l, u, lo, hi):
        equal = l == u
        solver = piqp.DenseSolver()
        settings = solver.settings
        settings.eps_abs = settings.eps_duality_gap_abs = 1e-9
        settings.eps_rel = settings.eps_duality_gap_rel = 0
        settings.check_duality_gap = settings.compute_timings = True
        solver.setup(Q, q, M[equal], l[equal], M[~equal], l[~equal], u[~equal], lo, hi)
        solver.solve()  # to its limit where it does not get there
        return solver.result.info.setup_time + solver.result.info.solve_time

    return lambda: float(np.exp(np.mean([np.log(statistics.median(seconds_of(*problem) for _ in range(3)))
                                         for problem in problems])))


def proxqp_seconds(kind, n, m, p):
    from proxsuite import proxqp

    Q, q, A, b, G, h = qp_data(n, m, p)
    below = np.full(p, -1e20)

    def solved():
        qp = proxqp.dense.QP(n, m, p)
        qp.settings.eps_abs = qp.settings.eps_rel = qp.settings.eps_duality_gap_abs = qp.settings.eps_duality_gap_rel = 1e-9
        qp.settings.check_duality_gap = qp.settings.compute_timings = True
        qp.init(Q, q, A, b, G, below, h)
        qp.solve()
        if qp.results.info.status != proxqp.QPSolverOutput.PROXQP_SOLVED:
            raise SystemExit("ProxQP did not solve it")
        return qp

    qp = solved()
    check_program(n, m, p, qp.results.x, qp.results.y, qp.results.z)
    if kind == "solve":

        def seconds():
            info = solved().results.info
            return (info.setup_time + info.solve_time) * 1e-6

        return seconds
    loss = np.concatenate([qp.results.x, np.zeros(m + p)])

    def seconds():
        start = time.perf_counter()
        proxqp.dense.compute_backward(qp, loss)
        return time.perf_counter() - start

    seconds()
    # The same with the active constraints as equations.
    C = np.vstack([A, G[qp.results.z > 1e-7]])
    K = np.block([[Q, C.T], [C, np.zeros((len(C), len(C)))]])
    b_bar = np.linalg.solve(K, np.concatenate([qp.results.x, np.zeros(len(C))]))[n : n + m]
    check("the derivative", qp.model.backward_data.dL_db, b_bar, 1e-3)
    return seconds


def many_programs(n, m, p, count):
    """Q, A and G, which all have, and q, b and h of each: as bench/many.cpp makes them."""
    Q, q, A, b, G, h = qp_data(n, m, p)
    noise = np.stack([0.1 * gaussian(1000 + k, 2 * n) for k in range(count)])
    moved = noise[:, n:]
    return Q, A, G, q + noise[:, :n], b + moved @ A.T, h + moved @ G.T


def moreau_seconds(kind, n, m, p, count):
    """A batch in which each program has all its data of its own. The solve includes the new matrices, which are what ours
    reads, too."""
    import moreau

    Q, A, G, q, b, h = many_programs(n, m, p, count)
    C, right = np.vstack([A, G]), np.hstack([b, h])
    solver = moreau.CompiledSolver(
        n=n, m=m + p, P_row_offsets=np.arange(n + 1) * n, P_col_indices=np.tile(np.arange(n), n),
        A_row_offsets=np.arange(m + p + 1) * n, A_col_indices=np.tile(np.arange(n), m + p),
        cones=moreau.Cones(num_zero_cones=m, num_nonneg_cones=p),
        settings=moreau.Settings(batch_size=count, enable_grad=True))
    all_Q, all_C = np.tile(Q.ravel(), (count, 1)), np.tile(C.ravel(), (count, 1))

    def solve():
        solver.setup(all_Q, all_C)
        return solver.solve(q, right)

    found = solve()  # which also chooses the method
    x = found.x
    dual = np.max(np.abs(x @ Q + q + found.z @ C))
    primal = max(np.max(np.abs(x @ A.T - b)), np.max(x @ G.T - h))
    if not max(dual, primal) <= 1e-8:
        raise SystemExit(f"a solution is wrong: primal {primal:.2g}, dual {dual:.2g}")

    def seconds():
        start = time.perf_counter()
        solve() if kind == "solve" else solver.backward(x)
        return time.perf_counter() - start

    return seconds
