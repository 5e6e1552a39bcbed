"""The table of JAX's primitives: each row against JAX itself, value and derivative; and what is refused, by name."""

from __future__ import annotations

import numpy as np
import pytest

import onestep

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

import onestep.jax  # noqa: E402
from onestep import _core  # noqa: E402
from onestep.jax._jaxpr import evaluated  # noqa: E402
from onestep.jax._second import traced  # noqa: E402
from onestep.jax._table import RULES  # noqa: E402
from onestep.jax._values import as_expr  # noqa: E402

X = np.array([0.3, -0.7, 1.2, 0.55])
M = np.array([[1.1, -0.4, 0.3, 0.2], [0.5, 2.0, -0.6, 0.1], [-0.2, 0.7, 1.5, 0.4]])
S = np.array([[2.0, 0.3, -0.1], [0.4, 1.5, 0.2], [0.1, -0.3, 1.0]])
POSITIVE = S @ S.T
DATA = np.array([[0.5, 1.5], [-1.0, 0.25], [2.0, -0.75], [0.1, 0.9]])

# (primitive, function, arguments)
CASES = [
    ("neg", lambda x: -x, X),
    ("exp", jnp.exp, X),
    ("exp2", jnp.exp2, X),
    ("expm1", jnp.expm1, X * 1e-9),
    ("log", jnp.log, X**2),
    ("log1p", jnp.log1p, X * 1e-9),
    ("sqrt", jnp.sqrt, X**2),
    ("rsqrt", lax.rsqrt, X**2),
    ("cbrt", jnp.cbrt, X),
    ("square", jnp.square, X),
    ("abs", jnp.abs, X),
    ("sign", lambda x: jnp.sign(x) * x, X),
    ("tanh", jnp.tanh, X),
    ("logistic", jax.nn.sigmoid, X * 30),
    ("erf", jax.scipy.special.erf, X),
    ("sin", jnp.sin, X),
    ("cos", jnp.cos, X),
    ("tan", lax.tan, X),
    ("asin", jnp.arcsin, X / 2),
    ("acos", jnp.arccos, X / 2),
    ("atan", jnp.arctan, X),
    ("sinh", jnp.sinh, X),
    ("cosh", jnp.cosh, X),
    ("is_finite", lambda x: jnp.where(jnp.isfinite(x), x, 0.0), X),
    ("add", lambda x: x + DATA.T, X),
    ("add_any", jax.grad(lambda x: jnp.sum(x * jnp.sin(x))), X),
    ("sub", lambda x: 2.0 - x, X),
    ("mul", lambda x: x * DATA[:, 0], X),
    ("mul", lambda x: x[:, None] * x[None, :], X),
    ("mul", lambda x: x[None, :] * x[:, None], X),
    ("div", lambda x: 1.0 / x, X),
    ("max", lambda x: jnp.maximum(x, 0.1), X),
    ("min", lambda x: jnp.minimum(x, x[::-1]), X),
    ("pow", lambda x: x**2.5, X**2),
    ("pow", lambda x: lax.pow(x, jnp.full(4, 0.5)), X**2),
    ("pow", lambda x: 2.0**x, X),
    ("integer_pow", lambda x: x**2, X),
    ("integer_pow", lambda x: x**3, X),
    ("integer_pow", lambda x: x**4, X),
    ("integer_pow", lambda x: x**-2, X),
    ("integer_pow", lambda x: x**7, X),
    ("atan2", lambda x: jnp.arctan2(x, x[::-1]), X),
    ("lt", lambda x: jnp.where(x < 0.4, x, 2 * x), X),
    ("le", lambda x: jnp.where(x <= 0.4, x, 2 * x), X),
    ("gt", lambda x: jnp.where(x > 0.4, x, 2 * x), X),
    ("ge", lambda x: jnp.where(x >= 0.4, x, 2 * x), X),
    ("eq", lambda x: jnp.where(x == 0.3, x, 2 * x), X),
    ("ne", lambda x: jnp.where(x != 0.3, x, 2 * x), X),
    ("and", lambda x: jnp.where((x > 0) & (x < 1), x, 2 * x), X),
    ("or", lambda x: jnp.where((x < 0) | (x > 1), x, 2 * x), X),
    ("xor", lambda x: jnp.where((x < 0) ^ (x < 1), x, 2 * x), X),
    ("not", lambda x: jnp.where(~(x < 0), x, 2 * x), X),
    ("clamp", lambda x: lax.clamp(-0.5, x, 0.5), X),
    ("select_n", lambda x: jnp.where(DATA[:, 0] > 0, x, 0.0), X),
    ("select_n", lambda x: jnp.where(jnp.array([True, True, True, True]), x, 0.0), X),
    ("select_n", lambda x: jnp.where(x[0] > 0, DATA, 2.0) * x[:, None], X),
    ("select_n", lambda x: jnp.where(x > 0, 1.0, -1.0) * x, X),
    ("stop_gradient", lambda x: lax.stop_gradient(x) * x, X),
    ("copy", lambda x: jnp.array(x, copy=True) * 2, X),
    ("copy_p", lambda x: x, X),
    ("optimization_barrier", lambda x: lax.optimization_barrier((x, 2 * x))[1], X),
    ("convert_element_type", lambda x: (x > 0).astype(jnp.float64) * x, X),
    ("convert_element_type", lambda x: jnp.where(x.astype(bool), x, 1.0), X),
    ("broadcast_in_dim", lambda x: jnp.broadcast_to(x, (3, 4)), X),
    ("broadcast_in_dim", lambda x: jnp.broadcast_to(jnp.sum(x), (2, 3)), X),
    ("reshape", lambda x: x.reshape(2, 2), X),
    ("squeeze", lambda x: jnp.squeeze(x.reshape(1, 4), 0) * 2, X),
    ("expand_dims", lambda x: jnp.expand_dims(x, 1), X),
    ("transpose", lambda m: m.T, M),
    ("rev", lambda m: lax.rev(m, (0, 1)), M),
    ("concatenate", lambda x: jnp.concatenate([x, jnp.ones(2), x]), X),
    ("concatenate", lambda m: jnp.concatenate([m, m], axis=1), M),
    ("pad", lambda x: jnp.pad(x, (1, 2)), X),
    ("pad", lambda m: lax.pad(m, 1.5, ((1, 0, 0), (2, -1, 0))), M),
    ("slice", lambda x: x[1:3], X),
    ("slice", lambda x: lax.slice(x, (0,), (4,), (2,)), X),
    ("slice", lambda m: m[1:, :2], M),
    ("dynamic_slice", lambda x: lax.dynamic_slice(x, (jnp.array(1),), (2,)), X),
    ("gather", lambda x: x[jnp.array([2, 0, 2, -1])], X),
    ("gather", lambda m: m[jnp.array([2, 0])], M),
    ("gather", lambda m: m[:, jnp.array([3, 0, 1])], M),
    ("gather", lambda m: m[jnp.array([2, 0]), jnp.array([1, 1])], M),
    ("gather", lambda s: s[jnp.arange(3), jnp.arange(3)], S),
    ("gather", lambda s: s[jnp.arange(3), jnp.array([1, 2, 0])], S),
    ("gather", lambda m: m[1], M),
    ("gather", lambda m: m[:, 2], M),
    ("gather", lambda m: jnp.take(m, jnp.array([[0, 5], [11, 3]])), M),
    ("scatter", lambda x: x.at[jnp.array([0, 2])].set(7.0) * x, X),
    ("scatter", lambda x: jnp.zeros(6).at[1].set(x[2]), X),
    ("scatter", lambda m: m.at[0].set(m[1]), M),
    ("scatter-add", lambda x: x.at[jnp.array([0, 2, 0])].add(x[:3]), X),
    ("scatter-add", jax.grad(lambda x: jnp.sum(jnp.sin(x[jnp.array([1, 1, 3])]))), X),
    ("dynamic_update_slice", lambda x: lax.dynamic_update_slice(x, x[:2] ** 2, (jnp.array(1),)), X),
    ("reduce_sum", jnp.sum, M),
    ("reduce_sum", lambda m: jnp.sum(m, 0), M),
    ("reduce_sum", lambda m: jnp.sum(m, 1), M),
    ("reduce_max", lambda m: jnp.max(m, 1), M),
    ("reduce_min", jnp.min, M),
    ("reduce_prod", jnp.prod, X),
    ("reduce_or", lambda x: jnp.where(jnp.any(x > 1), x, 0.0), X),
    ("reduce_and", lambda x: jnp.where(jnp.all(x > 1), x, 0.5 * x), X),
    ("cumsum", jnp.cumsum, X),
    ("cumsum", lambda m: lax.cumsum(m, 1, reverse=True), M),
    ("dot_general", lambda x: x @ DATA, X),
    ("dot_general", lambda x: DATA.T @ x, X),
    ("dot_general", lambda x: x @ x, X),
    ("dot_general", lambda m: m @ DATA, M),
    ("dot_general", lambda m: DATA.T @ m.T, M),
    ("dot_general", lambda m: jnp.tensordot(m, m, 2), M),
    ("dot_general", lambda m: lax.dot_general(m, m, (((), ()), ((0, 1), (0, 1)))), M),
    ("dot_general", lambda x: jnp.tensordot(x, x, 0), X),
    ("dot_general", lambda m: jnp.einsum("ij,ij->i", m, m), M),
    ("dot_general", lambda m: jnp.einsum("ij,ij->j", m, 2 * m), M),
]

INNER = onestep.jax.newton(lambda x, t: jnp.sum(jnp.log(jnp.cosh(x - t))) + jnp.sum(x**2))
INNER_QP = onestep.jax.quadratic_program(lambda c: {"Q": jnp.eye(4), "q": -c, "A": jnp.ones((1, 4)), "b": jnp.ones(1)})
CASES += [
    ("onestep_solve", lambda x: INNER(jnp.zeros(4), x) * x, X),
    ("onestep_solve", lambda x: INNER(x, jnp.sin(x)) * x, X),
    ("onestep_solve", lambda x: INNER_QP.solve(x).state[1] * x, X),
]

# Functions that are recognised as a whole, and others that many rows make.
WHOLE = [
    ("softplus", jax.nn.softplus, X * 1000),
    ("logaddexp", lambda x: jnp.logaddexp(x, x[::-1]), X * 400),
    ("logsumexp", lambda x: jax.nn.logsumexp(x), X * 1000),
    ("logsumexp", lambda m: jax.nn.logsumexp(m, axis=1), M),
    ("log_softmax", lambda m: jax.nn.log_softmax(m, axis=1), M),
    ("softmax", jax.nn.softmax, X),
    ("relu", jax.nn.relu, X),
    ("silu", jax.nn.silu, X),
    ("gelu", jax.nn.gelu, X),
    ("norm", jnp.linalg.norm, X),
    ("var", jnp.var, X),
    ("std", lambda m: jnp.std(m, axis=0), M),
    ("diag", jnp.diag, X),
    ("diag", jnp.diag, S),
    ("trace", jnp.trace, S),
    ("outer", lambda x: jnp.outer(x, x), X),
    ("solve", lambda s: jnp.linalg.solve(s, jnp.ones(3)), S),
    ("solve of a matrix", lambda s: jnp.linalg.solve(s, DATA[:3]), S),
    ("solve, positive", lambda s: jax.scipy.linalg.solve(s, jnp.ones(3), assume_a="pos"), POSITIVE),
    ("slogdet", lambda s: jnp.linalg.slogdet(s)[1], S),
    ("det", jnp.linalg.det, S),
    ("inv", jnp.linalg.inv, S),
    ("a checkpoint", lambda x: jax.checkpoint(jnp.sin)(x) * x, X),
    ("jit inside", lambda x: jax.jit(lambda a: a * jnp.sum(a))(x), X),
    ("a gradient inside", jax.grad(lambda x: jnp.sum(jnp.cumsum(x) ** 3) * jnp.max(x)), X),
    (
        "a second derivative inside",
        lambda x: jax.jvp(jax.grad(lambda x: jnp.sum(jnp.exp(x[:2])) * x[3] ** 2), (x,), (jnp.cos(x),))[1],
        X,
    ),
    ("a cond on data", lambda x: lax.cond(True, lambda a: a * 2, lambda a: a, x), X),
]


def names_in(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from names_in(inner)


def ours(function, argument):
    """The function traced by JAX and evaluated by onestep, and its vjp with a fixed cotangent."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(jax.ShapeDtypeStruct(argument.shape, np.float64))
    cotangent = np.cos(np.arange(1.0, 1.0 + np.prod(shape.shape, dtype=int))).reshape(shape.shape)

    def body(x):
        y = as_expr(evaluated(closed.jaxpr, [np.asarray(c) for c in closed.consts], [x])[0], "test")
        return y, _core.vjp(y, x, cotangent) + 0.0 * x

    return *traced(body, [argument.shape])(argument), cotangent, set(names_in(closed.jaxpr))


def check(function, argument):
    value, bar, cotangent, names = ours(function, argument)
    expected, pull = jax.vjp(function, jnp.asarray(argument))
    scale = 1e-300 + np.max(np.abs(np.asarray(expected)), initial=0.0)
    np.testing.assert_allclose(value, expected, rtol=2e-13, atol=2e-14 * scale)
    (wanted,) = pull(jnp.asarray(cotangent))
    scale = 1e-300 + np.max(np.abs(np.asarray(wanted)))
    np.testing.assert_allclose(bar, wanted, rtol=1e-11, atol=1e-12 * scale)
    return names


@pytest.mark.parametrize(("name", "function", "argument"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_a_row_of_the_table_has_the_value_and_the_derivative_of_jax(name, function, argument):
    names = check(function, argument)
    # Versions of JAX differ in which of these they use; the row is then not tested by this one.
    assert name in names or name in ("copy", "copy_p", "expand_dims", "gather", "square", "add_any", "tan", "squeeze", "xor")


def test_every_row_of_the_table_has_a_case():
    assert {name for name, _, _ in CASES} == set(RULES) == set(onestep.jax.traced_primitives())


@pytest.mark.parametrize(("name", "function", "argument"), WHOLE, ids=[f"{c[0]}-{i}" for i, c in enumerate(WHOLE)])
def test_functions_of_jax_have_the_value_and_the_derivative_of_jax(name, function, argument):
    check(function, argument)


def text_of(function, *shapes):
    closed = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(s, np.float64) for s in shapes))

    def body(*arguments):
        return tuple(evaluated(closed.jaxpr, [np.asarray(c) for c in closed.consts], arguments))

    return traced(body, list(shapes)).text


def test_softplus_is_recognised_as_one_operation():
    assert "softplus" in text_of(jax.nn.softplus, (3,))
    assert "softplus" in text_of(lambda x: jnp.logaddexp(0.0, x), (3,))


def test_a_solve_is_one_factorisation():
    text = text_of(lambda s, b: jnp.linalg.solve(s, b), (3, 3), (3,))
    assert text.count("lu(") == 1


def test_the_hessian_of_a_logistic_regression_is_one_symmetric_product(logistic):
    """As much is kept of the structure as where the same objective is written in NumPy."""
    A, y = jnp.asarray(logistic.A), jnp.asarray(logistic.y)
    closed = jax.make_jaxpr(lambda x, w: jnp.sum(w * jax.nn.softplus(-y * (A @ x))) + 0.1 * jnp.sum(x**2))(
        jnp.zeros(4), jnp.ones(40)
    )

    def by_jax(x, w):
        return _core.hessian(evaluated(closed.jaxpr, [np.asarray(c) for c in closed.consts], [x, w])[0], x)

    numpy = onestep.traced(lambda x, w: _core.hessian(logistic.objective(x, w), x), (4,), (40,))
    assert traced(by_jax, [(4,), (40,)]).flops <= numpy.flops


REFUSED = {
    "sort": lambda x: jnp.sort(x)[0],
    "argmax": lambda x: x[jnp.argmax(x)],
    "while": lambda x: lax.while_loop(lambda c: jnp.sum(c) < 10, lambda c: 2 * c, x)[0],
    "cond": lambda x: lax.cond(x[0] > 0, lambda: 1.0, lambda: x[0]),
    "scan": lambda x: lax.fori_loop(0, 3, lambda _, c: c * c, x)[0],
    "cholesky": lambda x: jnp.linalg.cholesky(jnp.outer(x, x) + jnp.eye(4))[0, 0],
    "lgamma": lambda x: jnp.sum(jax.scipy.special.gammaln(x)),
    "floor": lambda x: jnp.sum(jnp.floor(x)),
    "custom_vjp_call": None,
    "custom_jvp_call": None,
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_primitives_are_refused_by_name_with_the_way_out(name):
    function = REFUSED[name]
    if name == "custom_vjp_call":
        clipped = jax.custom_vjp(lambda x: x)
        clipped.defvjp(lambda x: (x, None), lambda _, c: (jnp.clip(c, -1, 1),))
        function = lambda x: jnp.sum(clipped(x))  # noqa: E731
    if name == "custom_jvp_call":
        straight = jax.custom_jvp(lambda x: jnp.round(x))
        straight.defjvp(lambda p, t: (jnp.round(p[0]), t[0]))
        function = lambda x: jnp.sum(straight(x))  # noqa: E731
    with pytest.raises(onestep.TracingError, match=rf"primitive {name} of JAX is not traced.*foreign_step"):
        onestep.jax.newton(function)(jnp.asarray(X))


def test_three_axes_are_refused():
    with pytest.raises(onestep.TracingError, match=r"shape \(4, 1, 1\).*at most two axes"):
        onestep.jax.newton(lambda x: jnp.sum(x[:, None, None] * x))(jnp.asarray(X))


def test_single_precision_inside_is_refused():
    with pytest.raises(onestep.TracingError, match="float32"):
        onestep.jax.newton(lambda x: jnp.sum(x.astype(jnp.float32)).astype(jnp.float64))(jnp.asarray(X))


def test_whole_numbers_that_depend_on_x_are_refused():
    with pytest.raises(onestep.TracingError, match="whole numbers"):
        onestep.jax.newton(lambda x: jnp.sum(x.astype(int) * x))(jnp.asarray(X))


def test_an_index_out_of_bounds_is_refused():
    with pytest.raises(onestep.TracingError, match="out of bounds"):
        onestep.jax.newton(lambda x: jnp.sum(x.at[jnp.array([7])].get(mode="fill") ** 2))(jnp.asarray(X))


def test_an_index_that_depends_on_x_is_refused():
    with pytest.raises(onestep.TracingError):
        onestep.jax.newton(lambda x: x[(x[0] > 0).astype(int)])(jnp.asarray(X))


def test_a_function_of_the_users_with_the_name_of_one_of_jax_is_what_it_computes():
    @jax.jit
    def solve(a, b):
        return a @ b

    value, *_ = ours(lambda s: solve(s, jnp.ones(3)), S)
    np.testing.assert_allclose(value, S @ np.ones(3), rtol=1e-14)
