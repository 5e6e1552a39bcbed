"""What holds for all expressions, shapes, layouts and numbers that hypothesis thinks of."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import onestep

# Of functions that neither overflow nor have a kink or a pole for moderate arguments, so that rounding is all that differs.
UNARY = [np.tanh, np.sin, np.arctan, lambda a: a / (1 + a * a), lambda a: np.logaddexp(0, a), lambda a: -a]
BINARY = [np.add, np.subtract, np.multiply, np.hypot, np.logaddexp, lambda a, b: np.where(a > b, a, 2 * b)]
REDUCTIONS = [np.sum, np.mean, np.max, lambda a: np.sum(a * a), lambda a: np.linalg.norm(a)]

sizes = st.integers(1, 4)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def shapes_that_broadcast(draw):
    """A shape of at most two axes, and one that is broadcast against it."""
    full = draw(st.sampled_from([(), (draw(sizes),), (draw(sizes), draw(sizes))]))
    other = tuple(1 if draw(st.booleans()) else size for size in full)
    return full, other[draw(st.integers(0, len(other))) :]


@st.composite
def functions_of_two(draw):
    """A random expression of two arrays, as a function that NumPy computes and that can be traced."""
    steps = draw(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 50), st.integers(0, 50)), max_size=6))
    reduction = draw(st.sampled_from([None, *REDUCTIONS]))

    def f(a, b):
        made = [a, b]
        for is_unary, which, i, j in steps:
            left, right = made[i % len(made)], made[j % len(made)]
            made.append(UNARY[which](left) if is_unary else np.tanh(BINARY[which](left, right)))
        return made[-1] + 0.0 if reduction is None else reduction(made[-1])

    return f


@given(functions_of_two(), shapes_that_broadcast(), seeds)
def test_a_traced_expression_has_the_value_and_shape_numpy_gives_it(f, shapes, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(-2, 2, shape) for shape in shapes)
    value = onestep.traced(f, a.shape, b.shape)(a, b)
    expected = f(a, b)
    assert np.shape(value) == np.shape(expected)
    np.testing.assert_allclose(value, expected, rtol=1e-11, atol=1e-12)


@st.composite
def layouts(draw):
    """The same numbers in another order of memory, or of another type that holds them."""
    how = draw(st.sampled_from(["C", "F", "every second", "backwards", "unaligned", "big endian", "float32", "list", "read only"]))

    def laid_out(a):
        if how == "F":
            return np.asfortranarray(a)
        if how == "every second":
            wide = np.full(a.shape[:-1] + (2 * a.shape[-1],), np.nan)
            wide[..., ::2] = a
            return wide[..., ::2]
        if how == "backwards":
            return a[::-1].copy()[::-1]
        if how == "unaligned":
            memory = np.empty(a.nbytes + 1, np.uint8)
            there = memory[1:].view(np.float64).reshape(a.shape)
            there[...] = a
            return there
        if how == "big endian":
            return a.astype(">f8")
        if how == "float32":
            return a.astype(np.float32)
        if how == "list":
            return a.tolist()
        fixed = a.copy()
        fixed.flags.writeable = False
        return fixed

    return laid_out


@given(layouts(), layouts(), st.integers(2, 5), seeds)
def test_the_layout_of_arrays_does_not_matter(of_data, of_parameters, n, seed):
    # Numbers with few digits are the same in single precision. Products with a transposed matrix round in another order.
    rng = np.random.default_rng(seed)
    A = rng.integers(-9, 10, (n + 3, n)) / 8
    t = rng.integers(1, 10, n) / 4
    w = rng.integers(1, 10, n + 3) / 4

    def solved(data, parameters):
        D = np.asarray(data(A))
        fit = onestep.newton(lambda x, t, w: np.sum(w * np.logaddexp(0, D @ x)) + np.sum(t * x**2))
        s = fit.solve(np.zeros(n), parameters(t), parameters(w))
        return s.x, *s.vjp(parameters(np.ones(n)))

    plain = solved(np.array, np.array)
    for value, expected in zip(solved(of_data, of_parameters), plain):
        assert np.linalg.norm(value - expected) <= 1e-11 * np.linalg.norm(expected)


@given(st.integers(1, 6), st.integers(0, 6), st.floats(1e-3, 1e3), seeds)
def test_ridge_regression_and_its_derivatives_are_those_of_the_closed_form(n, more, penalty, seed):
    rng = np.random.default_rng(seed)
    A, y = rng.normal(size=(n + more, n)), rng.normal(size=n + more)
    s = onestep.newton(lambda x, y, p: np.sum((A @ x - y) ** 2) + p * np.sum(x**2)).solve(np.zeros(n), y, penalty)
    H = A.T @ A + penalty * np.eye(n)
    x = np.linalg.solve(H, A.T @ y)
    condition = np.linalg.cond(H)
    scale = np.linalg.norm(x) + np.linalg.norm(y) / penalty**0.5
    assert np.linalg.norm(s.x - x) <= 1e-13 * condition * scale
    c = rng.normal(size=n)
    by_y, by_penalty = s.vjp(c)
    wanted = np.linalg.solve(H, c)
    size = np.linalg.norm(c) / np.linalg.eigvalsh(H)[0]
    assert np.linalg.norm(by_y - A @ wanted) <= 1e-12 * condition * size * np.linalg.norm(A, 2)
    assert abs(by_penalty + wanted @ x) <= 1e-12 * condition * size * scale
    assert np.linalg.norm(s.jvp((y, 0.0)) - x) <= 1e-12 * condition * scale


@given(st.integers(1, 8), seeds)
def test_many_problems_have_the_bits_of_each_alone(count, seed):
    rng = np.random.default_rng(seed)
    fit = onestep.newton(lambda x, t, p: np.sum(np.cosh(x - t)) + p * np.sum(x**2))
    targets, penalty = list(rng.normal(size=(count, 3))), rng.uniform(0.1, 2)
    many = onestep.solve_many(fit, np.zeros(3), targets, penalty)
    c = rng.normal(size=(count, 3))
    by_target, by_penalty = many.vjp(c)
    alone = [fit.solve(np.zeros(3), t, penalty) for t in targets]
    np.testing.assert_array_equal(many.x, [s.x for s in alone])
    np.testing.assert_array_equal(by_target, [s.vjp(ci)[0] for s, ci in zip(alone, c)])
    np.testing.assert_allclose(by_penalty, sum(s.vjp(ci)[1] for s, ci in zip(alone, c)), rtol=1e-12, atol=1e-14)
