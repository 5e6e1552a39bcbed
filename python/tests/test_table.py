"""Every function of NumPy in the table: its values are NumPy's own, its derivatives are those of differences."""

from __future__ import annotations

import numpy as np
import pytest

import onestep
from onestep import _numpy

M = np.array([[0.3, -1.2, 0.7], [1.1, 0.4, -0.6]])
S = np.array([[2.0, 0.3, -0.1], [0.2, 1.5, 0.4], [-0.3, 0.1, 1.8]])
V = np.array([0.4, -0.7, 1.3])
POSITIVE = np.array([0.4, 0.7, 1.3])
SMALL = np.array([0.4, -0.7, 0.3])

UFUNC_CASES = {
    np.add: [(V, M)],
    np.subtract: [(V, M)],
    np.multiply: [(V, M), (2.0, V)],
    np.divide: [(V, POSITIVE), (1.0, POSITIVE)],
    np.power: [(POSITIVE, V), (V, 2), (V, 3), (V, 4), (POSITIVE, 0.5), (V, -1), (V, 1), (2.0, V)],
    np.float_power: [(POSITIVE, V)],
    np.maximum: [(V, M[1]), (V, 0.1)],
    np.minimum: [(V, M[1]), (V, 0.1)],
    np.less: [(V, 0.3)],
    np.less_equal: [(V, 0.4)],
    np.greater: [(V, 0.3)],
    np.greater_equal: [(V, 0.4)],
    np.equal: [(V, 0.4)],
    np.not_equal: [(V, 0.4)],
    np.logical_and: [(V, np.array([1.0, 0.0, 2.0]))],
    np.logical_or: [(np.array([0.0, 0.0, 2.0]), np.array([1.0, 0.0, 0.0]))],
    np.logical_not: [(np.array([0.0, 0.5, 2.0]),)],
    np.hypot: [(V, POSITIVE)],
    np.arctan2: [(V, POSITIVE)],
    np.logaddexp: [(V, POSITIVE), (0, V), (V, 0.0), (V, np.array([800.0, -800.0, 1.3]))],
    np.matmul: [(M, V), (M, S), (V, S), (V, POSITIVE)],
    np.reciprocal: [(POSITIVE,)],
    np.log: [(POSITIVE,)],
    np.log1p: [(POSITIVE,)],
    np.sqrt: [(POSITIVE,)],
    np.arcsin: [(SMALL,)],
    np.arccos: [(SMALL,)],
}
UFUNC_CASES.update({u: [(V,), (M,), (0.3,)] for u in _numpy.UFUNCS if u not in UFUNC_CASES})

F = _numpy.FUNCTIONS
FUNCTION_CASES = {
    "sum": [
        lambda a: np.sum(a),
        lambda a: np.sum(a, axis=0),
        lambda a: np.sum(a, -1),
        lambda a: np.sum(a, axis=(0, 1)),
        lambda a: np.sum(a, axis=(1,), keepdims=True),
        lambda a: np.sum(a, keepdims=True),
        lambda a: a.sum(1),
        lambda a: a.sum(axis=-2),
    ],
    "mean": [lambda a: np.mean(a), lambda a: np.mean(a, axis=1), lambda a: a.mean(-2), lambda a: a.mean(0, keepdims=True)],
    "prod": [lambda a: np.prod(a), lambda a: np.prod(a, axis=0), lambda a: a.prod(axis=-1)],
    "max": [lambda a: np.max(a), lambda a: np.max(a, axis=1), lambda a: a.max(0), lambda a: np.amax(a, -1, keepdims=True)],
    "min": [lambda a: np.min(a), lambda a: np.min(a, axis=1), lambda a: a.min(0), lambda a: np.amin(a, -1)],
    "var": [lambda a: np.var(a), lambda a: np.var(a, axis=0, ddof=1), lambda a: a.var(axis=1)],
    "std": [lambda a: np.std(a), lambda a: np.std(a, axis=-1, ddof=1), lambda a: a.std(0)],
    "cumsum": [lambda a: np.cumsum(a), lambda a: np.cumsum(a, axis=1), lambda a: a.cumsum(-2), lambda a: a[0].cumsum()],
    "dot": [lambda a: np.dot(a, V), lambda a: a.dot(S), lambda a: np.dot(V, a[0]), lambda a: np.dot(2.0, a)],
    "vdot": [lambda a: np.vdot(a, M), lambda a: np.vdot(V, a[1])],
    "inner": [lambda a: np.inner(a, S), lambda a: np.inner(a[0], a[1]), lambda a: np.inner(V, a)],
    "outer": [lambda a: np.outer(a[0], a[1]), lambda a: np.outer(V, a)],
    "transpose": [lambda a: np.transpose(a), lambda a: a.T, lambda a: a.transpose(), lambda a: np.transpose(a, (1, 0)),
                  lambda a: a.transpose(-2, -1), lambda a: a[0].T],
    "reshape": [lambda a: np.reshape(a, (3, 2)), lambda a: a.reshape(-1), lambda a: a.reshape(3, -1), lambda a: a.reshape((1, 6))],
    "ravel": [lambda a: np.ravel(a), lambda a: a.ravel(), lambda a: a.flatten(), lambda a: a[0].ravel()],
    "squeeze": [lambda a: np.squeeze(a[:1]), lambda a: a[:1].squeeze(0), lambda a: np.squeeze(a), lambda a: a[:1, :1].squeeze()],
    "expand_dims": [lambda a: np.expand_dims(a[0], 0), lambda a: np.expand_dims(a[0], -1)],
    "broadcast_to": [lambda a: np.broadcast_to(a[0], (4, 3)), lambda a: np.broadcast_to(a[0, 0], 5)],
    "concatenate": [lambda a: np.concatenate([a, M]), lambda a: np.concatenate((a, a[:, :1]), axis=-1),
                    lambda a: np.concatenate([a[0], V]), lambda a: np.concatenate([a, V], axis=None)],
    "stack": [lambda a: np.stack([a[0], V]), lambda a: np.stack([a[0], V], axis=-1), lambda a: np.stack([a[0, 0], 2.0, a[1, 1]])],
    "hstack": [lambda a: np.hstack([a, M]), lambda a: np.hstack([a[0], 3.0, V])],
    "vstack": [lambda a: np.vstack([a, V]), lambda a: np.vstack([a[0], M])],
    "column_stack": [lambda a: np.column_stack([a.T, V]), lambda a: np.column_stack([a[0], V])],
    "where": [lambda a: np.where(a > 0.35, a, a * a), lambda a: np.where(M > 0, a, 0.0)],
    "clip": [lambda a: np.clip(a, -0.5, 0.5), lambda a: np.clip(a, 0.0, None), lambda a: a.clip(None, 0.5), lambda a: a.clip(-1, 1),
             lambda a: np.clip(a, a_min=-0.5, a_max=0.5)],
    "diag": [lambda a: np.diag(a[0]), lambda a: np.diag(a[:, :2])],
    "diagonal": [lambda a: np.diagonal(a[:, 1:]), lambda a: a[:, :2].diagonal()],
    "trace": [lambda a: np.trace(a[:, :2]), lambda a: a[:, 1:].trace()],
    "flip": [lambda a: np.flip(a), lambda a: np.flip(a, axis=-1), lambda a: np.flip(a[0])],
    "take": [lambda a: np.take(a, [1, 0], axis=1), lambda a: np.take(a, [5, -6]), lambda a: a.take([1], axis=0), lambda a: np.take(a, 2)],
    "norm": [lambda a: np.linalg.norm(a), lambda a: np.linalg.norm(a, axis=1), lambda a: np.linalg.norm(a[0], 2),
             lambda a: np.linalg.norm(a, "fro"), lambda a: np.linalg.norm(a, axis=0, keepdims=True),
             lambda a: np.linalg.norm(a, axis=(0, 1)), lambda a: np.linalg.norm(a, "fro", axis=(1, 0), keepdims=True)],
    "solve": [lambda a: np.linalg.solve(a[:, :2] + 2 * np.eye(2), a[:, 2]), lambda a: np.linalg.solve(S, a.T)],
    "inv": [lambda a: np.linalg.inv(a[:, :2] + 2 * np.eye(2))],
    "det": [lambda a: np.linalg.det(a[:, :2] + 2 * np.eye(2))],
    "shape": [lambda a: a[0] * np.shape(a)[1]],
    "ndim": [lambda a: a * np.ndim(a)],
    "size": [lambda a: a / np.size(a), lambda a: a / np.size(a, 0)],
    "zeros_like": [lambda a: a + np.zeros_like(a)],
    "ones_like": [lambda a: a + np.ones_like(a)],
    "full_like": [lambda a: a + np.full_like(a, 2.5)],
}  # fmt: skip


def differences(f, arguments, which, c):
    """The gradient of <c, f> by one argument, by central differences."""
    a = np.asarray(arguments[which], dtype=float)
    gradient = np.zeros(a.shape)
    h = 1e-5
    for i in np.ndindex(a.shape):
        moved = []
        for sign in (1, -1):
            other = a.copy()
            other[i] += sign * h
            moved.append(np.sum(c * f(*arguments[:which], other, *arguments[which + 1 :])))
        gradient[i] = (moved[0] - moved[1]) / (2 * h)
    return gradient


def check(f, numpy_f, arguments, which, smooth=True):
    """f traced with the argument `which` as an expression, beside numpy_f."""
    a = np.asarray(arguments[which], dtype=float)

    def of_one(e):
        return f(*arguments[:which], e, *arguments[which + 1 :])

    expected = np.asarray(numpy_f(*arguments), dtype=float)
    traced = onestep.traced(of_one, a.shape)
    value = traced(a)
    assert value.shape == expected.shape
    np.testing.assert_allclose(value, expected, rtol=1e-13, atol=1e-15)
    if smooth:
        c = np.cos(np.arange(expected.size)).reshape(expected.shape)
        gradient = onestep.traced(lambda e: onestep.grad(np.sum(c * of_one(e)), e), a.shape)(a)
        wanted = differences(numpy_f, arguments, which, c)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-7, atol=1e-8 * (1 + np.abs(wanted).max()))


COMPARISONS = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}
COMPARISONS |= {np.logical_and, np.logical_or, np.logical_not, np.sign}


@pytest.mark.parametrize("ufunc", list(_numpy.UFUNCS), ids=lambda u: u.__name__)
def test_ufunc_has_the_values_and_derivatives_of_numpy(ufunc):
    for arguments in UFUNC_CASES[ufunc]:
        for which, argument in enumerate(arguments):
            if isinstance(argument, (int, float)) and len(arguments) > 1:
                continue  # a number written in the function is no argument of it
            check(ufunc, ufunc, arguments, which, smooth=ufunc not in COMPARISONS)


def name_of(function) -> str:
    return {"amax": "max", "amin": "min"}.get(function.__name__, function.__name__)


@pytest.mark.parametrize("name", sorted({name_of(f) for f in _numpy.FUNCTIONS}))
def test_function_has_the_values_and_derivatives_of_numpy(name):
    for f in FUNCTION_CASES[name]:
        check(f, f, (M,), 0)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: 2 + a - 1 * a / 3 - (-a),
        lambda a: M * a + M @ a.T @ M,
        lambda a: M - a,
        lambda a: M / (a * a + 1),
        lambda a: np.float64(2.5) * a + np.float32(0.5),
        lambda a: np.int64(3) * a,
        lambda a: [[1.0, 2.0, 3.0]] * a,
        lambda a: abs(a) + (+a),
        lambda a: a**2 + a**1 + 2**a,
        lambda a: a @ V,
        lambda a: V @ a.T,
        lambda a: (a > 0.35) * a + (a <= 0.35) * a**2,
        lambda a: (M < a + 0.1) * a,
        lambda a: (a == 0.31) * 1.0 + (a != 0.31) * a,
        lambda a: sum(row @ V for row in a),
        lambda a: a[0, 0] + a[1, 2] * a[-1, -1],
    ],
)
def test_operators_are_those_of_numpy(f):
    check(f, f, (M,), 0)


def test_a_square_is_traced_as_one():
    for f in (lambda x: x**2, lambda x: x**2.0, lambda x: np.power(x, 2), lambda x: np.square(x)):
        assert "square" in onestep.traced(f, (3,)).text
        assert "pow" not in onestep.traced(f, (3,)).text


def test_zero_plus_is_softplus():
    for f in (lambda x: np.logaddexp(0, x), lambda x: np.logaddexp(x, 0.0)):
        assert onestep.traced(f, (3,)).text.count("=") == 1


def test_an_array_and_its_transpose_are_one_constant():
    A = np.arange(6.0).reshape(3, 2)
    traced = onestep.traced(lambda x: A.T @ (A @ x), (2,))
    assert traced.text.count("constant") == 1
    np.testing.assert_allclose(traced(np.array([1.0, 2.0])), A.T @ (A @ [1.0, 2.0]))


def test_scipys_ufuncs_are_traced():
    special = pytest.importorskip("scipy.special")
    check(special.expit, special.expit, (V,), 0)
    check(special.erf, special.erf, (V,), 0)


def test_own_functions():
    check(onestep.softplus, lambda a: np.logaddexp(0, a), (V,), 0)
    check(onestep.sigmoid, lambda a: 1 / (1 + np.exp(-a)), (V,), 0)
    check(onestep.relu, lambda a: np.maximum(a, 0), (V,), 0)
    check(onestep.log_sum_exp, lambda a: np.log(np.sum(np.exp(a))), (M,), 0)
    check(lambda a: onestep.log_sum_exp(a, 1), lambda a: np.log(np.sum(np.exp(a), axis=1)), (M,), 0)
    check(lambda a: onestep.gram(a, np.array([1.0, 2.0])), lambda a: a.T @ np.diag([1.0, 2.0]) @ a, (M,), 0)
    check(lambda a: onestep.logdet(onestep.lu(a)), lambda a: np.log(abs(np.linalg.det(a))), (S,), 0)
    check(lambda a: onestep.solve_factored(onestep.lu(a), V, transposed=True), lambda a: np.linalg.solve(a.T, V), (S,), 0)
    check(lambda a: onestep.pad(a, 1, 5), lambda a: np.pad(a, 1), (V,), 0)
    check(onestep.stop_gradient, lambda a: a, (V,), 0, smooth=False)


def test_derivatives_inside_a_traced_function_are_expressions():
    f = lambda x: np.sum(x**4)  # noqa: E731
    np.testing.assert_allclose(onestep.traced(lambda x: onestep.grad(f(x), x), (3,))(V), 4 * V**3)
    np.testing.assert_allclose(onestep.traced(lambda x: onestep.hessian(f(x), x), (3,))(V), np.diag(12 * V**2))
    np.testing.assert_allclose(onestep.traced(lambda x: onestep.hvp(f(x), x, V), (3,))(V), 12 * V**3)
    np.testing.assert_allclose(onestep.traced(lambda x: onestep.jacobian(x**2, x), (3,))(V), np.diag(2 * V))
    np.testing.assert_allclose(onestep.traced(lambda x: onestep.jvp(x**2, x, POSITIVE), (3,))(V), 2 * V * POSITIVE)
    np.testing.assert_allclose(onestep.traced(lambda x: onestep.vjp(M @ x, x, [1.0, 2.0]), (3,))(V), M.T @ [1, 2])


def test_the_list_of_traced_functions_names_them():
    names = onestep.traced_functions()
    assert {"numpy.sum", "numpy.logaddexp", "numpy.linalg.solve", "scipy.special.expit"} <= set(names)
