"""What cannot be traced is refused, with its name and what to use instead; misuse has a message and a type."""

from __future__ import annotations

import math

import numpy as np
import pytest

import onestep
from onestep import TracingError


def trace(f, shape=(3,)):
    return onestep.traced(f, shape)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: np.einsum("i,i->", x, x), "np.einsum is not traced: use np.matmul"),
        (lambda x: np.tensordot(x, x, 1), "np.tensordot is not traced: use np.matmul"),
        (lambda x: np.fft.fft(x), "np.fft.fft is not traced: onestep.traced_functions"),
        (lambda x: np.sort(x), "np.sort is not traced"),
        (lambda x: np.linalg.cholesky(np.outer(x, x)), "np.linalg.cholesky is not traced: use onestep.cholesky"),
        (lambda x: np.linalg.slogdet(np.outer(x, x)), "use onestep.logdet"),
        (lambda x: np.log10(x), r"np.log10 is not traced: use np.log\(x\) / np.log\(10\)"),
        (lambda x: np.isnan(x), "np.isnan is not traced: use x != x"),
        (lambda x: np.floor(x), "np.floor is not traced"),
        (lambda x: np.median(x), "np.median is not traced"),
        (lambda x: np.argmax(x), "np.argmax is not traced: use np.max"),
        # The same for np.add.reduce; but NumPy leaks its argument where that raises.
        (lambda x: np.multiply.outer(x, x), "np.multiply.outer is not traced"),
        (lambda x: np.exp(x, out=np.zeros(3)), "out= is not traced"),
        (lambda x: np.exp(x, where=np.array([True, False, True])), "where= is not traced"),
        (lambda x: np.sum(x, out=np.zeros(())), "np.sum: these arguments are not traced"),
        (lambda x: np.sum(x, dtype=np.float32), "np.sum: these arguments are not traced"),
        (lambda x: np.max(x, initial=0.0), "np.max: these arguments are not traced"),
        (lambda x: np.linalg.norm(x, 1), "np.linalg.norm is traced for the Euclidean norm"),
        (lambda x: np.linalg.norm(np.diag(x), 2, axis=(0, 1)), "np.linalg.norm is traced for the Euclidean norm"),
        (lambda x: np.linalg.norm(np.diag(x), 2), "np.linalg.norm is traced for the Euclidean norm"),
        (lambda x: np.diag(x, 1), "main diagonal"),
        (lambda x: np.where(x > 0), "both choices"),
        (lambda x: np.array([x[0], x[1]]), "np.stack"),
        (lambda x: np.asarray(x), "cannot become a NumPy array"),
        (lambda x: np.eye(3).dot(x), "A @ x for A.dot"),
        (lambda x: x if x[0] > 0 else -x, r"a branch .* np.where"),
        (lambda x: x * (x[0] > 0 and x[1] > 0), "a branch"),
        (lambda x: x[0] < x[1] < x[2], "a branch"),
        (lambda x: math.exp(x[0]), r"float\(\)"),
        (lambda x: float(x[0]) * x, r"float\(\)"),
        (lambda x: list(map(float, x)), r"float\(\)"),
        (lambda x: int(x[0]), r"int\(\)"),
        (lambda x: list(range(x[0])), "an index"),
        (lambda x: x[0].item(), r"\.item\(\)"),
        (lambda x: x.tolist(), r"\.tolist\(\)"),
        (lambda x: x.astype(np.float32), r"\.astype\(\)"),
        (lambda x: x.__setitem__(0, 1.0), "cannot be changed"),
        (lambda x: (x > 0) & (x < 1), "the operator & is not traced: use np.logical_and"),
        (lambda x: True | (x < 1), r"the operator \| is not traced: use np.logical_or"),
        (lambda x: x % 2, "the operator % is not traced"),
        (lambda x: 3 // x, "the operator // is not traced"),
        (lambda x: ~(x > 0), "the operator ~ is not traced: use np.logical_not"),
        (lambda x: x.ravel("F"), r"\.ravel\(\): these arguments are not traced"),
        (lambda x: x.reshape(3, 1, order="F"), r"\.reshape\(\): these arguments are not traced"),
        (lambda x: np.flip(x, (0,)), "np.flip: these arguments are not traced"),
        (lambda x: x[True], "a truth value is no index"),
        (lambda x: x[None, np.False_], "a truth value is no index"),
        (lambda x: x[None][0, None, [1, 2]], "index in NumPy's other order"),
        (lambda x: x[range(2)], "an index is a whole number, .* not an object of type range"),
        (lambda x: np.matrix(np.eye(3)) * x, r"np\.matrix is not supported.*np\.asarray\(M\)"),
        (lambda x: x - np.matrix([1.0, 2, 3]), r"np\.matrix is not supported"),
        (lambda x: x + np.array([1j, 2, 3]), "not one of dtype complex128"),
        (lambda x: x + np.array(["a", "b", "c"]), "not one of dtype"),
        (lambda x: x + np.array([1, None, 3]), "not one of dtype object"),
        (lambda x: x + np.ma.masked_array([1.0, 2, 3], [0, 1, 0]), "masked"),
        (lambda x: onestep.softplus("a"), "not an object of type str"),
        (lambda x: onestep.softplus(None), "NoneType"),
        (lambda x: None, "lack a return"),
        (lambda x: list(x[0]), "cannot be iterated"),
        (lambda x: len(x[0]), "no length"),
        (lambda x: hash(x), "unhashable"),
        (lambda x: x + "a", "unsupported operand"),
        (lambda x: "a" * x, "an index"),
    ],
)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_what_is_not_traced_is_a_type_error(f, words):
    with pytest.raises(TypeError, match=words):
        trace(f)


def test_item_assignment_is_refused():
    def f(x):
        x[0] = 1.0
        return x

    with pytest.raises(TracingError, match="cannot be changed: make the whole anew"):
        trace(f)

    def into_an_array(x):
        a = np.zeros(3)
        a[0] = x[0]
        return a

    with pytest.raises((TypeError, ValueError)):  # NumPy's own, which hides ours
        trace(into_an_array)

    def in_place(x):
        a = np.ones(3)
        a += x
        return a

    with pytest.raises(TracingError, match="out= is not traced"):
        trace(in_place)


def test_an_augmented_assignment_makes_another_expression():
    def f(x):
        y = x
        y += 1
        y *= 2
        return y - x

    np.testing.assert_array_equal(trace(f)(np.array([1.0, 2, 3])), [3.0, 4, 5])


def test_sparse_matrices_are_refused_by_name():
    sparse = pytest.importorskip("scipy.sparse")
    for S in (sparse.eye(3, format="csr"), sparse.csr_array(np.eye(3))):
        for f in (lambda x: S @ x, lambda x: x @ S, lambda x: S * x, lambda x: x * S):
            with pytest.raises(TypeError, match="toarray"):
                trace(f)
        with pytest.raises(TypeError, match="SciPy's sparse matrices are not supported"):
            onestep.newton(lambda x, t: np.sum((x - t) ** 2)).solve(np.zeros(3), S)


def test_arrays_of_other_types_are_converted_or_refused():
    solver = onestep.newton(lambda x, t: np.sum((x - t) ** 2))
    for theta in (
        np.array([1, 2, 3]),
        np.array([1, 2, 3], dtype=np.float32),
        np.array([True, False, True]),
        [1, 2.0, 3],
        np.arange(6.0)[::2],
        np.arange(3.0)[::-1],
        np.array([1.0, 2, 3], dtype=">f8"),
        np.arange(3, dtype=np.uint8),
        np.frombuffer(b"\0" + np.arange(3.0).tobytes(), dtype=np.uint8)[1:].view(np.float64),
    ):
        np.testing.assert_allclose(solver.solve(np.zeros(3), theta).x, np.asarray(theta, dtype=float), atol=1e-15)
    for theta in (np.array([1j, 2, 3]), np.array([object()] * 3), "abc", None, {"a": 1}, np.array(["2020-01-01"] * 3, "M8[D]")):
        with pytest.raises(TypeError):
            solver.solve(np.zeros(3), theta)
    with pytest.raises(onestep.MisuseError, match="at most two axes"):
        solver.solve(np.zeros(3), np.zeros((1, 1, 3)))


def test_matrices_in_any_order_are_read_right(rng):
    A = rng.normal(size=(4, 3))
    solver = onestep.newton(lambda x, A: np.sum((A @ x - 1.0) ** 2))
    expected = np.linalg.lstsq(A, np.ones(4), rcond=None)[0]
    wide = np.zeros((8, 6))
    wide[::2, ::2] = A
    for layout in (A, np.asfortranarray(A), wide[::2, ::2], A.T.copy().T, A[::-1][::-1]):
        np.testing.assert_allclose(solver.solve(np.zeros(3), layout).x, expected, rtol=1e-12)
        captured = onestep.newton(lambda x, t: np.sum((layout @ x - t) ** 2))
        np.testing.assert_allclose(captured.solve(np.zeros(3), np.ones(4)).x, expected, rtol=1e-12)


def test_shapes_that_do_not_fit_have_the_librarys_message():
    with pytest.raises(onestep.MisuseError, match=r"\[matmul\] inner dimensions differ: \(2, 3\) and \(4\)"):
        onestep.traced(lambda x: np.ones((2, 3)) @ x, (4,))
    with pytest.raises(ValueError):
        onestep.traced(lambda x: x + np.ones(3), (4,))
    with pytest.raises(np.exceptions.AxisError):
        onestep.traced(lambda x: np.sum(x, axis=2), (4,))
    with pytest.raises(onestep.MisuseError):
        onestep.traced(lambda x: x.reshape(3, -1), (4,))


def test_calls_that_do_not_fit_are_misuse():
    solver = onestep.newton(lambda x, t: np.sum((x - t) ** 2))
    with pytest.raises(onestep.MisuseError, match="2 arguments"):
        solver.solve(np.zeros(3))
    with pytest.raises(onestep.MisuseError, match="no start"):
        solver.solve()
    with pytest.raises(onestep.MisuseError):
        solver.solve(np.zeros(3), np.zeros(3), np.zeros(3))
    s = solver.solve(np.zeros(3), np.ones(3))
    for call in (lambda: s.vjp(np.ones(2)), lambda: s.jvp(np.ones(2)), lambda: s.jvp((np.ones(3), 1.0)), lambda: s.certificate(np.ones(4))):
        with pytest.raises(onestep.MisuseError):
            call()
    with pytest.raises(onestep.MisuseError):
        onestep.newton(lambda x, t: np.sum((x - t) ** 2), tolerance=-1.0).solve(np.zeros(3), np.ones(3))
    with pytest.raises(TypeError, match="newton\\(\\) has no option 'tol'; there are tolerance"):
        onestep.newton(lambda x, t: x, tol=1e-3)
    with pytest.raises(TypeError, match="tolerance cannot be 'small'"):
        onestep.newton(lambda x, t: x, tolerance="small")
    with pytest.raises(TypeError, match="callback"):
        onestep.newton(lambda x, t: x, callback=3)
    for wrong in (OneStepClass, "implicit", 3):
        with pytest.raises(TypeError, match="estimator must be"):
            solver.solve(np.zeros(3), np.ones(3), estimator=wrong)
    with pytest.raises(TypeError, match="step must be"):
        onestep.gradient_descent(lambda x, t: x, step="optimal")
    with pytest.raises(TypeError, match="a function to trace"):
        onestep.newton(3)
    with pytest.raises(TypeError, match=r"writing \*all"):
        onestep.newton(lambda *all: all[0])


OneStepClass = onestep.OneStep


def test_arguments_with_defaults_are_no_parameters():
    import functools

    A = np.diag([1.0, 2.0])
    expected = [1.0, 0.5]

    class Model:
        def objective(self, x, t):
            return np.sum((A @ x - t) ** 2)

        def __call__(self, x, t):
            return self.objective(x, t)

    def three(A, x, t):
        return np.sum((A @ x - t) ** 2)

    for f in (lambda x, t, A=A: np.sum((A @ x - t) ** 2), Model().objective, Model(), functools.partial(three, A)):
        np.testing.assert_allclose(onestep.newton(f).solve(np.zeros(2), np.ones(2)).x, expected)


@pytest.mark.parametrize("shape, axis", [((0,), None), ((0, 3), 0), ((3, 0), 1)])
def test_no_entries_have_no_maximum(shape, axis):
    for of in (np.max, np.min):
        with pytest.raises(onestep.TracingError, match="has no entries"):
            onestep.traced(lambda x: of(x, axis=axis), shape)
    assert onestep.traced(lambda x: np.max(x, axis=0), (3, 0))(np.zeros((3, 0))).shape == (0,)
