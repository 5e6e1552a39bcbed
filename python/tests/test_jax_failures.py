"""onestep.jax where something is wrong: inputs, functions, problems without a solution, programs without their solver."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import onestep

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402

import onestep.jax  # noqa: E402

X0 = jnp.zeros(2)


def nearest(**how):
    return onestep.jax.newton(lambda x, t: jnp.sum((x - t) ** 2), **how)


def concave(**how):
    """Has a minimiser for t > 0 alone."""
    return onestep.jax.newton(lambda x, t: jnp.sum(t * x**2) + jnp.sum(x), **how)


# ---- precision ----


def test_double_precision_is_asked_for():
    with jax.experimental.enable_x64(False) if hasattr(jax.experimental, "enable_x64") else jax.enable_x64(False):
        with pytest.raises(onestep.MisuseError, match=r'jax.config.update\("jax_enable_x64", True\)'):
            nearest()(np.zeros(2), np.ones(2))
        with pytest.raises(onestep.MisuseError, match="jax_enable_x64"):
            onestep.jax.QP()(q=np.ones(2))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_less_than_double_precision_is_refused_by_name(dtype):
    with pytest.raises(onestep.MisuseError, match=r"parameter 0 is an array of .*float.*dtype='input'"):
        nearest()(X0, jnp.ones(2, dtype))
    with pytest.raises(onestep.MisuseError, match=r"parameter 0\['a'\] is an array of"):
        onestep.jax.newton(lambda x, p: jnp.sum((x - p["a"]) ** 2))(X0, {"a": jnp.ones(2, dtype)})


def test_single_precision_is_taken_and_given_where_a_dtype_says_so():
    t = jnp.array([1.0, 2.0], jnp.float32)
    fit = nearest(dtype="input")
    assert fit(X0.astype(jnp.float32), t).dtype == np.float32
    gradient = jax.jit(jax.grad(lambda t: jnp.sum(fit(X0.astype(jnp.float32), t) ** 2)))(t)
    assert gradient.dtype == np.float32 and np.allclose(gradient, 2 * t)
    assert nearest(dtype=jnp.float32)(X0, t.astype(jnp.float64)).dtype == np.float32
    assert nearest(dtype="input")(X0, t.astype(jnp.float64)).dtype == np.float64


def test_whole_numbers_are_numbers():
    assert np.array_equal(nearest()(np.zeros(2, int), np.array([1, 2])), [1.0, 2.0])
    assert np.array_equal(nearest()([0.0, 0.0][0], 3), 3.0)


@pytest.mark.parametrize("bad", [jnp.ones(2, complex), jnp.array([True, False])])
def test_arrays_that_are_not_of_real_numbers_are_refused(bad):
    with pytest.raises(onestep.MisuseError, match="real numbers"):
        nearest()(X0, bad)


# ---- misuse ----


def test_misuse_is_said_by_name():
    cases = [
        (r"on_error is 'raise', 'nan' or 'keep', not 'ignore'", lambda: nearest(on_error="ignore")),
        (r"estimator must be one of onestep's", lambda: nearest(estimator="implicit")),
        (r"dtype must be a floating dtype or 'input'", lambda: nearest(dtype=int)),
        (r"a JAX function is needed", lambda: onestep.jax.newton(3)),
        (r"no start", lambda: nearest()()),
        (r"the start has no arrays", lambda: nearest()({}, jnp.ones(2))),
        (r"parameter 0 has shape \(2, 1, 1\).*jax.vmap", lambda: nearest()(X0, jnp.ones((2, 1, 1)))),
        (r"the objective returns an array of shape \(2,\)", lambda: onestep.jax.newton(lambda x: x)(X0)),
        (r"the objective returns 2 arrays", lambda: onestep.jax.newton(lambda x: (x[0], x[1]))(X0)),
        (r"the step returns .* x0 is", lambda: onestep.jax.fixed_point(lambda x: (x, x))(X0)),
        (r"returns a dict", lambda: onestep.jax.quadratic_program(lambda c: c)(X0)),
        (r"no part 'R'", lambda: onestep.jax.quadratic_program(lambda c: {"R": c, "q": c})(X0)),
    ]
    for message, call in cases:
        with pytest.raises(onestep.MisuseError, match=message):
            call()
    with pytest.raises(TypeError, match="no option 'tolerence'"):
        nearest(tolerence=1e-3)


def test_misuse_is_said_while_a_function_is_compiled():
    with pytest.raises(onestep.MisuseError, match="shape"):
        jax.jit(onestep.jax.fixed_point(lambda x, t: jnp.concatenate([x, t]), on_error="nan"))(X0, X0)


# ---- problems without a solution ----


def test_a_failure_raises_and_names_the_problem():
    with pytest.raises(onestep.NotConvergedError, match=r"\[newton\].*on_error='nan' or 'keep'"):
        concave()(jnp.zeros(1), -1.0)
    with pytest.raises(onestep.NotConvergedError, match="2 of 4 problems .* the first of them, number 1"):
        jax.vmap(lambda t: concave()(jnp.zeros(1), t))(jnp.array([1.0, -1.0, 2.0, -3.0]))


def test_a_failure_inside_of_a_compiled_function_names_the_problem():
    with pytest.raises(Exception, match=r"NotConvergedError: \[newton\]"):
        jax.jit(concave())(jnp.zeros(1), -1.0).block_until_ready()
    with pytest.raises(Exception, match="2 of 4 problems did not end at a solution; the first of them, number 1"):
        jax.block_until_ready(jax.jit(jax.vmap(lambda t: concave()(jnp.zeros(1), t)))(jnp.array([1.0, -1.0, 2.0, -3.0])))
    # And the next call is as if nothing had been.
    assert np.allclose(jax.jit(concave())(jnp.zeros(1), 1.0), -0.5)


def test_where_asked_failures_are_nan_and_leave_the_others_alone():
    fit = concave(on_error="nan")
    T = jnp.array([1.0, -1.0, 2.0])
    solve = jax.jit(jax.vmap(lambda t: fit.solve(jnp.zeros(1), t)))
    solved = solve(T)
    assert np.array_equal(solved.converged, [True, False, True])
    assert np.isnan(solved.x[1]).all() and np.allclose(solved.x[::2, 0], [-0.5, -0.25])
    x = lambda T: jax.vmap(lambda t: fit(jnp.zeros(1), t)[0])(T)  # noqa: E731
    # One that a loss leaves out adds nothing; one that it uses is NaN.
    assert np.allclose(jax.jit(jax.grad(lambda T: jnp.sum(jnp.where(T > 0, x(T), 0.0))))(T), [0.5, 0.0, 0.125])
    g = jax.jit(jax.grad(lambda T: jnp.sum(x(T))))(T)
    assert np.isnan(g[1]) and np.allclose(g[::2], [0.5, 0.125])
    shared = lambda s: jnp.sum(jnp.where(T > 0, x(s * T), 0.0))  # noqa: E731
    assert np.allclose(jax.grad(shared)(1.0), 0.75)
    assert np.isnan(jax.jvp(x, (T,), (jnp.ones(3),))[1][1])


def test_where_asked_whatever_there_is_is_kept():
    slow = onestep.jax.fixed_point(
        lambda x, t: 0.5 * (x + t), max_iterations=3, on_error="keep", estimator=onestep.Unrolled()
    )
    solved = jax.jit(slow.solve)(jnp.array(0.0), 1.0)
    assert float(solved.x) == 0.875 and onestep.Status(int(solved.status)) is onestep.Status.iteration_limit
    assert np.allclose(jax.jit(jax.grad(lambda t: slow(jnp.array(0.0), t)))(1.0), 0.875)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_parameters_that_are_not_finite_are_a_failure(bad):
    with pytest.raises(onestep.NotConvergedError, match="not finite|NaN"):
        nearest()(X0, jnp.array([1.0, bad]))
    assert np.isnan(jax.jit(nearest(on_error="nan"))(X0, jnp.array([1.0, bad]))).all()


def test_a_cotangent_that_is_not_finite_is_not_lost():
    T = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    pull = jax.vjp(jax.vmap(lambda t: nearest(on_error="nan")(X0, t)), T)[1]
    (g,) = pull(jnp.array([[1.0, 1.0], [np.nan, 1.0]]))
    assert np.allclose(g[0], 1.0) and np.isnan(g[1]).any()
    with pytest.raises(onestep.MisuseError, match="cotangent"):
        jax.vjp(lambda t: nearest()(X0, t), T[0])[1](jnp.array([np.nan, 1.0]))


def test_a_derivative_that_does_not_exist_is_no_number():
    # Two equal minimisers' valley: the Hessian is singular at every solution.
    flat = onestep.jax.newton(lambda x, t: (x[0] + x[1] - t) ** 2, estimator=onestep.Implicit())
    with pytest.raises((onestep.NoDerivativeError, onestep.NotConvergedError)):
        jax.grad(lambda t: jnp.sum(flat(X0, t) ** 2))(1.0)
    with pytest.raises(Exception, match="NoDerivativeError|NotConvergedError"):
        jax.jit(jax.grad(lambda t: jnp.sum(flat(X0, t) ** 2)))(1.0).block_until_ready()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scales_change_nothing(scale):
    t = jnp.array([1.0, -2.0]) * scale
    objective = lambda x, t: jnp.sum(jnp.cosh((x - t) / scale)) + 0.5 * jnp.sum((x / scale) ** 2)  # noqa: E731
    f = onestep.jax.newton(objective)
    x = jax.jit(f)(X0, t)
    assert np.max(np.abs(jax.jit(jax.grad(objective))(x, t))) * scale < 1e-12
    c = np.cosh((x - t) / scale)
    J = jax.jit(jax.jacrev(lambda t: f(X0, t)))(t)
    np.testing.assert_allclose(J, np.diag(c / (c + 1)), rtol=1e-10, atol=1e-14)


def test_empty_and_single_entries_are_arrays_like_others():
    assert onestep.jax.newton(lambda x, t: jnp.sum((x - t) ** 2))(jnp.zeros(0), jnp.zeros(0)).shape == (0,)
    assert np.allclose(jax.grad(lambda t: nearest()(jnp.array(0.0), t) ** 2)(3.0), 6.0)
    assert np.allclose(jax.grad(lambda t: nearest()(jnp.zeros((1, 1)), t)[0, 0] ** 2)(jnp.full((1, 1), 3.0)), 6.0)


def test_arrays_that_do_not_lie_row_by_row_are_read_right(rng):
    M = rng.normal(size=(3, 4))
    f = nearest()
    for made in (M.T, M[:, ::2], np.asfortranarray(M), M[::-1]):
        assert np.array_equal(f(np.zeros(made.shape), made), made)
        assert np.array_equal(jax.jit(f)(np.zeros(made.shape), jnp.asarray(made)), made)
    assert np.array_equal(jax.jit(lambda m: f(jnp.zeros((4, 3)), m.T))(M), M.T)


# ---- compiled functions ----


def test_a_program_of_another_process_is_refused():
    """Its number is of no call of this one."""
    from onestep.jax import _lowering

    if not _lowering.HAS_FFI:
        pytest.skip("the package was built without the headers of jaxlib")
    text = jax.jit(nearest()).lower(X0, X0).as_text()
    number = int(re.search(r"number = (-?\d+)", text)[1])
    call = jax.ffi.ffi_call(
        "onestep_call", [jax.ShapeDtypeStruct((1, 2), np.float64), jax.ShapeDtypeStruct((1,), np.int32)]
    )
    with pytest.raises(Exception, match="of another process"):
        jax.block_until_ready(call(X0, X0, number=np.int64(number + 10**12)))


CALLBACK = """
import jax, numpy as np, onestep._core
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
onestep._core.xla_handler = lambda: None
import onestep.jax
assert onestep.jax.interface() == "callback", onestep.jax.interface()
fit = onestep.jax.newton(lambda x, t: jnp.sum(jnp.cosh(x - t)) + jnp.sum(x**2))
f = lambda t: jnp.sum(fit(jnp.zeros(2), t) ** 2)
T = jnp.array([[1.0, 2.0], [0.5, -1.0]])
for g in (jax.grad(f), jax.hessian(f)):
    assert np.array_equal(jax.jit(jax.vmap(g))(T), jnp.stack([g(t) for t in T]))
assert jax.jit(lambda t: fit.solve(jnp.zeros(2), t).status)(T[0]) == 0
try:
    jax.block_until_ready(jax.jit(onestep.jax.newton(lambda x, t: jnp.sum(x * t)))(jnp.zeros(2), T[0]))
except Exception as error:
    assert "[newton]" in str(error), error
else:
    raise AssertionError("no error")
"""


def test_without_the_interface_of_xla_a_callback_gives_the_same():
    done = subprocess.run([sys.executable, "-c", CALLBACK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_interface_is_said():
    assert re.fullmatch(r"ffi \d+\.\d+|callback", onestep.jax.interface())


def test_a_handler_is_registered_only_where_xla_takes_it():
    """One of a younger version would take the CPU away from JAX."""
    from onestep.jax._lowering import _fits, _version_of_xla

    assert _fits("0.3", (0, 3)) and _fits("0.3", (0, 5))
    assert not _fits("0.3", (0, 2)) and not _fits("0.3", (1, 3)) and not _fits("0.3", None) and not _fits("", (0, 3))
    assert (_version_of_xla() or (0, 0)) >= (0, 1)


def test_messages_do_not_name_a_proof_that_nobody_has():
    for of_program, message in (({"lo": 1.0, "hi": 0.0}, "No point satisfies all constraints"), ({}, "along a ray: ")):
        with pytest.raises(onestep.NotConvergedError, match=message) as error:
            onestep.jax.QP()(q=jnp.ones(2), **of_program)
        assert "proof" not in str(error.value)


def test_second_derivatives_of_a_problem_that_the_loss_leaves_out_are_zero():
    root = onestep.jax.newton_root(lambda x, w: x**2 - w, on_error="nan")
    w = jnp.array([4.0, -1.0, 9.0])
    x = jax.vmap(lambda w: root(1.0, w))
    loss = lambda w: jnp.sum(jnp.where(w > 0, x(w), 0.0))  # noqa: E731
    expected = np.diag([-1 / 32, 0.0, -1 / 108])
    for hessian in (jax.hessian(loss), jax.jacfwd(jax.jacfwd(loss)), jax.jit(jax.jacrev(jax.jacrev(loss)))):
        np.testing.assert_allclose(hessian(w), expected, rtol=1e-8)
    assert np.isnan(jax.vmap(jax.hessian(lambda w: root(1.0, w)))(w)[1])


def test_a_closed_over_array_of_many_axes_is_named():
    def f(b):
        return onestep.jax.newton(lambda x: jnp.sum((x - b[0, 0]) ** 2))(X0)

    assert np.allclose(f(jnp.ones((1, 1, 2))), 1.0)
    with pytest.raises(onestep.MisuseError, match=r"an array of shape \(1, 1, 2\) is closed over"):
        jax.jit(f)(jnp.ones((1, 1, 2)))


def test_derivative_rules_that_are_not_jaxs_own_are_refused():
    @jax.custom_gradient
    def by_gradient(v):
        return v**2, lambda g: (3 * v * g,)

    # A package whose name begins as that of JAX, in the same folder.
    beside = os.path.dirname(jax.__file__) + "opt/rules.py"
    source = "h = jax.custom_jvp(lambda v: v**2)\nh.defjvp(lambda p, t: (h(p[0]), 3 * p[0] * t[0]))\n"
    names = {"jax": jax}
    exec(compile(source, beside, "exec"), names)
    for rule in (by_gradient, names["h"]):
        with pytest.raises(onestep.TracingError, match="does not use derivative rules"):
            onestep.jax.newton_root(lambda x, w: rule(x) - w)(1.0, 4.0)
    assert np.allclose(onestep.jax.newton_root(lambda x, w: jax.nn.relu(x) - w)(1.0, 4.0), 4.0)


STOPPED = """
import jax, os, signal, sys, threading
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import onestep._core
if sys.argv[1] == "callback":
    onestep._core.xla_handler = lambda: None
import onestep.jax
signal.signal(signal.SIGINT, signal.default_int_handler)
slow = onestep.jax.fixed_point(lambda x, t: 0.999999999 * x + t, max_iterations=10**9)
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    jax.jit(slow)(jnp.ones(3), jnp.ones(3)).block_until_ready()
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.parametrize("interface", ["ffi", "callback"])
def test_ctrl_c_in_a_compiled_function_is_a_keyboard_interrupt(interface):
    done = subprocess.run([sys.executable, "-c", STOPPED, interface], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr[-2000:]
