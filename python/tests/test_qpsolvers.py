"""onestep.qpsolvers: problems and solutions of qpsolvers, with derivatives."""

from __future__ import annotations

import concurrent.futures
import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import onestep
from onestep import Status

qpsolvers = pytest.importorskip("qpsolvers", reason="qpsolvers is not installed: pip install qpsolvers")
import onestep.qpsolvers  # noqa: E402
import qpsolvers.problems  # noqa: E402
from qpsolvers import Problem  # noqa: E402

solve = onestep.qpsolvers.solve_problem
INF = np.inf
P2, Q2 = np.eye(2), np.array([-1.0, -2.0])


def random_problem(rng, n=6, rows=5, equalities=2, bounds=True):
    """Strictly convex, with a point inside, and some of the constraints active."""
    L, x = rng.normal(size=(n, n)), rng.normal(size=n)
    G, A = rng.normal(size=(rows, n)), rng.normal(size=(equalities, n))
    box = {"lb": x - rng.uniform(0.05, 2, n), "ub": x + rng.uniform(0.05, 2, n)} if bounds else {}
    return Problem(L @ L.T + np.eye(n), 3 * rng.normal(size=n), G, G @ x + rng.uniform(0, 0.5, rows), A, A @ x, **box)


def residuals(solution):
    """The optimality conditions in the convention of qpsolvers, each relative to its largest term, signs included."""
    P, q, G, h, A, b, lb, ub = (None if p is None else np.asarray(p, float) for p in solution.problem.unpack_as_dense())
    x, y, z, z_box = solution.x, solution.y, solution.z, solution.z_box
    terms = [(P + P.T) / 2 @ x, q]
    sums, wrong = [], [0.0]
    if G is not None:
        terms.append(G.T @ z)
        finite = h < INF
        slack = (h - G @ x)[finite]
        scale = 1 + np.abs(h[finite]).max(initial=0.0)
        wrong += [np.max(-slack, initial=0.0) / scale, np.max(-z, initial=0.0), np.abs(z[~finite]).max(initial=0.0)]
        sums.append(np.abs(slack * z[finite]).max(initial=0.0) / scale)
    if A is not None:
        terms.append(A.T @ y)
        wrong.append(np.abs(A @ x - b).max(initial=0.0) / (1 + np.abs(b).max(initial=0.0)))
    if lb is not None or ub is not None:
        terms.append(z_box)
        below = -np.inf if lb is None else lb
        above = np.inf if ub is None else ub
        wrong += [np.max(below - x, initial=0.0), np.max(x - above, initial=0.0)]
        # Negative multipliers belong to lower bounds, positive ones to upper bounds: the other factor vanishes.
        at_lower, at_upper = np.minimum(z_box, 0) != 0, np.maximum(z_box, 0) != 0
        sums.append(np.max(np.abs((x - below)[at_lower] * z_box[at_lower]), initial=0.0))
        sums.append(np.max(np.abs((above - x)[at_upper] * z_box[at_upper]), initial=0.0))
    largest = max(np.abs(t).max(initial=0.0) for t in terms)
    return max([np.abs(sum(terms)).max() / (1 + largest), *wrong, *(s / (1 + largest) for s in sums)])


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("bounds", [False, True])
def test_multipliers_have_the_signs_of_qpsolvers(seed, bounds):
    solution = qpsolvers.solve_problem(random_problem(np.random.default_rng(seed), bounds=bounds), solver="onestep")
    assert solution.found and solution.is_optimal(1e-7)
    assert residuals(solution) < 1e-9
    assert (solution.z > 1e-3).any() or (np.abs(solution.z_box) > 1e-3).any()


@pytest.mark.parametrize(
    "name", ["qpsut01", "qpsut02", "qpsut03", "qpsut04", "qpsut05", "qptest", "qpgurdu", "qpgurabs", "qpgureq"]
)
def test_the_sample_problems_of_qpsolvers_are_solved(name):
    problem, known = getattr(qpsolvers.problems, f"get_{name}")()
    solution = qpsolvers.solve_problem(problem, solver="onestep")
    assert residuals(solution) < 1e-9
    if name in ("qpsut01", "qptest"):  # whose multipliers are given, and unique
        for part in ("x", "z", "z_box"):
            np.testing.assert_allclose(getattr(solution, part), getattr(known, part), atol=1e-8)


def test_importing_makes_onestep_a_solver_that_qpsolvers_knows_once():
    onestep.qpsolvers.register()
    assert qpsolvers.available_solvers.count("onestep") == qpsolvers.dense_solvers.count("onestep") == 1
    assert "onestep" not in qpsolvers.sparse_solvers
    np.testing.assert_allclose(
        qpsolvers.solve_qp(P2, Q2, lb=np.zeros(2), ub=np.full(2, 0.5), solver="onestep"), [0.5, 0.5]
    )
    np.testing.assert_allclose(qpsolvers.solve_ls(P2, -Q2, solver="onestep"), [1, 2])
    np.testing.assert_allclose(onestep.qpsolvers.solve_qp([[1, 0], [0, 1]], [-1, -3], lb=[0, 0], ub=[2, 2]), [1, 2])


def test_a_solution_says_how_it_ended_and_what_it_cost():
    problem = random_problem(np.random.default_rng(0))
    solution = solve(problem, certificate=np.ones(6))
    assert solution.extras["status"] is Status.converged and solution.extras["iterations"] > 2
    assert solution.extras["certificate"].bound < 1e-8
    assert solution.obj == pytest.approx(0.5 * solution.x @ problem.P @ solution.x + problem.q @ solution.x)
    assert solution.build_time > 0 and solution.solve_time > 0
    assert isinstance(solution, qpsolvers.Solution) and solution.problem is problem


def test_gradients_by_every_part_are_those_of_differences():
    problem = random_problem(np.random.default_rng(3), n=4, rows=3, equalities=1)
    solution = solve(problem, tolerance=1e-12)
    c = np.array([1.0, -2.0, 0.5, 3.0])
    gradients = solution.vjp(c)
    assert list(gradients) == ["P", "q", "A", "b", "G", "h", "lb", "ub"]
    rng = np.random.default_rng(4)
    for name, gradient in gradients.items():
        direction = rng.normal(size=gradient.shape)
        if name == "P":
            direction += direction.T
        ends = []
        for sign in (1, -1):
            moved = copy.deepcopy(problem)
            setattr(moved, name, getattr(problem, name) + sign * 1e-5 * direction)
            ends.append(solve(moved, tolerance=1e-12))
        difference = (ends[0].x - ends[1].x) / 2e-5
        assert np.sum(gradient * direction) == pytest.approx(c @ difference, rel=1e-5, abs=1e-7), name
        dx, dy, dz, dz_box = solution.jvp({name: direction})
        np.testing.assert_allclose(dx, difference, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(dy, (ends[0].y - ends[1].y) / 2e-5, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(dz_box, (ends[0].z_box - ends[1].z_box) / 2e-5, rtol=1e-4, atol=1e-5)


def test_cotangents_of_multipliers_count_too_and_parts_that_are_not_there_have_no_gradient():
    problem = random_problem(np.random.default_rng(1), bounds=False)
    solution = solve(problem)
    assert list(solution.vjp(solution.x)) == ["P", "q", "A", "b", "G", "h"]
    of_y = solution.vjp((np.zeros(6), np.array([1.0, 0.0]), np.zeros(5), solution.z_box))
    dy = solution.jvp({"b": np.array([1.0, 0.0])})[1]
    assert of_y["b"][0] == pytest.approx(dy[0], rel=1e-8)
    with pytest.raises(onestep.MisuseError, match="no part 'lb'"):
        solution.jvp({"lb": np.zeros(6)})
    with pytest.raises(onestep.MisuseError, match="tangent of h"):
        solution.jvp({"h": np.zeros(4)})


@pytest.mark.parametrize(
    ("status", "parts"),
    [
        (Status.infeasible, {"G": np.array([[1.0, 0], [-1, 0]]), "h": np.array([0.0, -1])}),
        (Status.infeasible, {"A": np.ones((2, 2)), "b": np.array([1.0, 2])}),
        (Status.infeasible, {"A": np.array([[1.0, 1], [1, 1]]), "b": np.array([1, 1 + 1e-7])}),
        (Status.infeasible, {"lb": np.array([0.0, 1]), "ub": np.array([1.0, 0])}),
        (Status.infeasible, {"lb": np.full(2, INF), "ub": np.full(2, -INF)}),
        (Status.infeasible, {"lb": np.array([0, INF])}),
        (Status.infeasible, {"ub": np.array([0, -INF])}),
        (Status.infeasible, {"G": np.ones((1, 2)), "h": np.array([-INF])}),
        (Status.infeasible, {"A": np.zeros((1, 2)), "b": np.ones(1)}),
        (Status.unbounded, {"P": np.zeros((2, 2))}),
        (Status.unbounded, {"P": np.diag([1.0, 0]), "lb": np.zeros(2)}),
        (Status.not_convex, {"P": np.diag([1.0, -1])}),
        (Status.not_convex, {"P": np.diag([1.0, -1]), "lb": np.zeros(2), "ub": np.ones(2)}),
        (Status.not_finite, {"P": np.full((2, 2), np.nan)}),
        (Status.not_finite, {"q": np.array([INF, 0])}),
        (Status.not_finite, {"G": np.full((1, 2), np.nan), "h": np.ones(1)}),
        (Status.not_finite, {"G": np.ones((1, 2)), "h": np.array([np.nan])}),
        (Status.not_finite, {"A": np.ones((1, 2)), "b": np.array([INF])}),
        (Status.not_finite, {"lb": np.array([np.nan, 0])}),
    ],
)
def test_what_has_no_solution_is_not_found_and_says_why(status, parts):
    solution = solve(Problem(**{"P": P2, "q": Q2, **parts}))
    assert solution.found is False and solution.extras["status"] is status
    assert solution.x is None and solution.y is None and solution.z is None and solution.obj is None
    with pytest.raises(onestep.NotConvergedError):
        solution.vjp(np.ones(2))


def test_the_proof_of_infeasibility_contradicts_and_that_of_unboundedness_descends():
    G, h = np.array([[1.0, 2], [-2, -4]]), np.array([1.0, -3])
    proof = solve(Problem(P2, Q2, G, h)).extras["proof"]
    np.testing.assert_allclose(G.T @ proof["z"] + proof["z_box"], 0, atol=1e-9)
    assert (proof["z"] >= 0).all() and h @ proof["z"] == pytest.approx(-1.0)
    crossing = solve(Problem(P2, Q2, lb=np.ones(2), ub=np.zeros(2))).extras
    assert (
        "proof" not in crossing
        and "bounds cross" in crossing["message"]
        and crossing["message"].endswith("[lb, entry 0]")
    )
    assert solve(Problem(np.diag([1.0, np.nan]), Q2)).extras["message"].endswith("[P, entry 3]")
    P = np.diag([1.0, 0])
    direction = solve(Problem(P, Q2, lb=np.zeros(2))).extras["proof"]["direction"]
    assert Q2 @ direction == pytest.approx(-1.0) and np.abs(P @ direction).max() < 1e-9 and direction.min() >= 0


@pytest.mark.parametrize(
    ("parts", "x"),
    [
        ({}, [1, 2]),
        ({"ub": np.array([0.5, INF])}, [0.5, 2]),
        ({"P": np.zeros((2, 2)), "lb": np.zeros(2), "ub": np.ones(2)}, [1, 1]),
        (
            {"P": np.array([[2.0, 1], [0, 2]]), "lb": np.zeros(2)},
            [4 / 15, 14 / 15],
        ),  # the minimum of its symmetric part
        ({"G": np.zeros((0, 2)), "h": np.zeros(0), "A": np.zeros((0, 2)), "b": np.zeros(0)}, [1, 2]),
        ({"G": np.ones((3, 2)), "h": np.ones(3)}, [0, 1]),
        ({"A": np.ones((2, 2)), "b": np.ones(2)}, [0, 1]),
        ({"G": np.ones((2, 2)), "h": np.array([INF, 1])}, [0, 1]),
        ({"lb": np.array([0.3, 0.1]), "ub": np.array([0.3, 1.5])}, [0.3, 1.5]),
        ({"lb": np.full(2, -INF), "ub": np.full(2, INF)}, [1, 2]),
        ({"P": np.eye(2, dtype=np.float32), "q": Q2.astype(np.float32), "lb": np.zeros(2, np.float32)}, [1, 2]),
        ({"P": np.eye(2, dtype=int), "q": np.array([-1, -3]), "ub": np.array([2, 2])}, [1, 2]),
        (
            {
                "P": np.asfortranarray(np.diag([1.0, 2])),
                "q": np.array([-0.5, 0, -3])[::2],
                "G": np.eye(4)[::2, ::2],
                "h": np.ones(2),
            },
            [0.5, 1],
        ),
    ],
)
def test_corner_cases_have_their_solution(parts, x):
    solution = solve(Problem(**{"P": P2, "q": Q2, **parts}))
    assert solution.extras["status"] is Status.converged
    np.testing.assert_allclose(solution.x, x, atol=1e-8)
    assert residuals(solution) < 1e-9


def test_one_variable_and_one_row_need_no_second_axis():
    solution = solve(Problem(np.array([2.0]), np.array([-2.0]), np.array([1.0]), np.array([0.5])))
    np.testing.assert_allclose([solution.x, solution.z], [[0.5], [1.0]])
    assert solution.y.shape == solution.z_box.shape == (0,)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
def test_units_change_nothing(scale):
    p = random_problem(np.random.default_rng(2))
    x = solve(p).x
    objective = solve(Problem(scale * p.P, scale * p.q, p.G, p.h, p.A, p.b, p.lb, p.ub))
    rows = solve(Problem(p.P, p.q, scale * p.G, scale * p.h, scale * p.A, scale * p.b, p.lb, p.ub))
    unknowns = solve(
        Problem(p.P / scale**2, p.q / scale, p.G / scale, p.h, p.A / scale, p.b, scale * p.lb, scale * p.ub)
    )
    for solution, unit in ((objective, 1.0), (rows, 1.0), (unknowns, scale)):
        assert solution.extras["status"].is_solution
        np.testing.assert_allclose(solution.x / unit, x, rtol=1e-8, atol=1e-8)


def test_a_warm_start_changes_the_time_and_nothing_else():
    problem = random_problem(np.random.default_rng(0), n=40, rows=30, equalities=5)
    cold = solve(problem)
    for start in (cold.x, (cold.x, cold.y, cold.z, cold.z_box)):
        warm = qpsolvers.solve_problem(problem, solver="onestep", initvals=start)
        assert warm.extras["iterations"] < cold.extras["iterations"]
        np.testing.assert_allclose(warm.x, cold.x, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(warm.vjp(cold.x)["q"], cold.vjp(cold.x)["q"], rtol=1e-7, atol=1e-9)
    far = solve(problem, initvals=np.full(40, 1e6))
    np.testing.assert_allclose(far.x, cold.x, rtol=1e-7, atol=1e-8)
    for wrong in (np.ones(3), np.full(40, np.nan), (cold.x, cold.y)):
        with pytest.raises(qpsolvers.ParamError, match="initvals"):
            solve(problem, initvals=wrong)


def test_limits_are_kept_and_the_last_point_is_there(capsys):
    problem = random_problem(np.random.default_rng(0))
    short = solve(problem, max_iterations=2, verbose=True)
    assert short.found is False and short.extras["status"] is Status.iteration_limit
    assert short.extras["last"]["x"].shape == (6,)
    assert capsys.readouterr().out.startswith("onestep: iteration_limit in ")
    assert solve(problem, time_limit=1e-12).extras["status"] is Status.time_limit


def test_a_limit_of_iterations_that_small_residuals_need_is_enough():
    problem = random_problem(np.random.default_rng(5), n=30, rows=20, equalities=4)
    for short_steps in (True, False):
        least = next(k for k in range(1, 50) if solve(problem, max_iterations=k, short_steps=short_steps).found)
        assert least <= 12
        assert solve(problem, max_iterations=least).found


def test_a_solution_is_as_accurate_as_asked_where_strict_complementarity_fails():
    problem = Problem(P2, Q2, ub=np.array([1.0, 3.0]))  # the first bound is active, its multiplier is 0
    for short_steps, accuracy in ((True, 1e-8), (False, 1e-4)):
        solution = solve(problem, short_steps=short_steps)
        assert residuals(solution) < 1e-8
        np.testing.assert_allclose(solution.x, [1, 2], atol=accuracy)
        assert solution.certificate(solution.x).basis == onestep.Certificate.Basis.refused


def test_without_short_steps_a_solve_is_shorter_and_has_the_same_derivatives_and_statuses():
    problem = random_problem(np.random.default_rng(5), n=30, rows=20, equalities=4)
    usual, short = solve(problem), solve(problem, short_steps=False)
    assert short.extras["iterations"] <= usual.extras["iterations"]
    np.testing.assert_allclose(short.x, usual.x, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(short.vjp(usual.x)["h"], usual.vjp(usual.x)["h"], rtol=1e-7, atol=1e-9)
    crossing = solve(Problem(P2, Q2, np.array([[1.0, 0], [-1, 0]]), np.array([0.0, -1])), short_steps=False)
    assert crossing.extras["status"] is Status.infeasible and crossing.extras["proof"]["z"].size == 2


def test_where_the_solution_is_not_unique_there_is_one_and_no_derivative():
    solution = solve(Problem(np.zeros((2, 2)), np.array([1.0, 0.0]), lb=np.zeros(2), ub=np.ones(2)))
    assert solution.found and residuals(solution) < 1e-9
    with pytest.raises((onestep.NoDerivativeError, onestep.NotConvergedError)):
        solution.vjp(np.ones(2))


def test_sparse_matrices_are_written_out_up_to_a_limit():
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed: pip install scipy")
    p = random_problem(np.random.default_rng(0))
    for kind in (sparse.csc_matrix, sparse.csr_array, sparse.coo_array):
        solution = solve(Problem(kind(p.P), p.q, kind(p.G), p.h, p.A, p.b, p.lb, p.ub))
        np.testing.assert_array_equal(solution.x, solve(p).x)
    large = Problem(sparse.eye(6000, format="csc"), np.ones(6000))
    with pytest.raises(qpsolvers.ProblemError, match="P of this problem is sparse.*36,000,000.*sparse_solvers"):
        solve(large)
    with pytest.raises(qpsolvers.ProblemError, match="P and G of this problem are sparse"):
        solve(Problem(sparse.eye(6, format="csc"), p.q, sparse.csc_matrix(p.G), p.h), dense_limit=60)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"q": np.ones(3)}, "P has shape"),
        ({"P": np.ones((3, 2))}, "P has shape"),
        ({"G": np.ones((1, 3)), "h": np.ones(1)}, "G has shape"),
        ({"G": np.ones((2, 2)), "h": np.ones(1)}, "G has 2 rows, h has 1"),
        ({"G": np.ones((2, 2))}, "G and h belong together"),
        ({"b": np.ones(2)}, "A and b belong together"),
        ({"lb": np.zeros(3)}, "lb has 3 entries"),
        ({"P": 1j * P2}, "P has entries of type complex128"),
        ({"q": np.array([None, 1])}, "q has entries of type object"),
        ({"P": np.zeros((0, 0)), "q": np.zeros(0)}, "at least one variable"),
    ],
)
def test_data_that_do_not_fit_are_refused_by_name_with_an_error_of_both_packages(parts, message):
    with pytest.raises(onestep.MisuseError, match=message) as caught:
        solve(Problem(**{"P": P2, "q": Q2, **parts}))
    assert isinstance(caught.value, qpsolvers.ProblemError)


@pytest.mark.parametrize(
    "option", [{"eps_abs": 1e-3}, {"tolerance": -1}, {"tolerance": "a"}, {"estimator": "implicit"}]
)
def test_options_that_do_not_exist_are_refused(option):
    with pytest.raises(qpsolvers.ParamError, match=next(iter(option))) as caught:
        qpsolvers.solve_qp(P2, Q2, solver="onestep", **option)
    assert isinstance(caught.value, onestep.MisuseError)


def test_threads_solve_side_by_side():
    problems = [random_problem(np.random.default_rng(seed), n=12, rows=9) for seed in range(8)]
    alone = [solve(p).x for p in problems]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda i: solve(problems[i % 8]).x, range(200)))
    for i, x in enumerate(together):
        np.testing.assert_array_equal(x, alone[i % 8])


def test_without_qpsolvers_the_import_says_what_to_install():
    code = "import sys; sys.modules['qpsolvers'] = None; import onestep.qpsolvers"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1 and "ImportError: onestep.qpsolvers needs qpsolvers: pip install" in ended.stderr


def test_the_data_of_a_solution_may_change_and_its_copies_are_numbers():
    problem = random_problem(np.random.default_rng(0))
    solution = solve(problem)
    before = solution.vjp(solution.x)["q"]
    problem.q[:] = 0.0
    problem.P[:] = np.nan
    np.testing.assert_array_equal(solution.vjp(solution.x)["q"], before)
    for copied in (pickle.loads(pickle.dumps(solution)), copy.deepcopy(solution)):
        np.testing.assert_array_equal(copied.x, solution.x)
        assert copied.extras["status"] is Status.converged
        with pytest.raises(onestep.MisuseError, match="solve the problem again"):
            copied.vjp(copied.x)
