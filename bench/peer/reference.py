"""What the contenders' gradients have to be, in long double: 64 bits on x86, where doubles have 53. Linear systems are
factored in doubles and their solutions refined by residuals in long double, so NumPy is all that is needed."""
import numpy as np

LONG = np.longdouble


def refined(product, inverse, right):
    """The solution of product(z) = right, for a double `inverse` that is near enough to converge."""
    z, last = np.zeros(len(right), LONG), np.inf
    for _ in range(30):
        residual = right - product(z)
        size = np.max(np.abs(residual))
        if not size < last / 2:
            break
        z, last = z + inverse @ residual.astype(np.float64), size
    return z


def logistic(A, y, w):
    """The minimiser x of sum(w softplus(-y A x)) + 0.1 sum(x[1:]^2) and the gradient of |x|^2/2 by w, by Newton's method."""
    A, y, w = (np.asarray(part, LONG) for part in (A, y, w))
    penalty = np.r_[LONG(0), np.full(A.shape[1] - 1, LONG("0.1") * 2)]
    doubles, x, last = A.astype(np.float64), np.zeros(A.shape[1], LONG), np.inf
    while True:
        s = 1 / (1 + np.exp(y * (A @ x)))
        curvature = w * s * (1 - s)
        H = (doubles.T * curvature.astype(np.float64)) @ doubles + np.diag(penalty.astype(np.float64))
        inverse = np.linalg.inv(H)
        step = inverse @ (A.T @ (-y * w * s) + penalty * x).astype(np.float64)
        length = np.linalg.norm(step)
        if length < 1e-13 * np.linalg.norm(x.astype(np.float64)) and not length < last / 2:
            break
        x, last = x - step, length
    u = refined(lambda u: A.T @ (curvature * (A @ u)) + penalty * u, inverse, x)
    return x, [(A @ u) * y * s]


def active_rows(Q, q, A, b, G, h):
    """Which inequalities hold with equality, by an interior point method in doubles. Whoever uses it checks it."""
    n, m, p = len(q), len(b), len(h)
    x, y, z, s = np.zeros(n), np.zeros(m), np.ones(p), np.ones(p)
    for _ in range(200):
        dual, equal, below = Q @ x + q + A.T @ y + G.T @ z, A @ x - b, G @ x + s - h
        gap = s @ z / p
        if max(np.max(np.abs(dual)), np.max(np.abs(equal), initial=0), np.max(np.abs(below)), gap) < 1e-10:
            break
        centre = s * z - 0.1 * gap
        K = np.block([[Q + (G.T * (z / s)) @ G, A.T], [A, np.zeros((m, m))]])
        right = np.concatenate([-dual - G.T @ ((z * below - centre) / s), -equal])
        step = np.linalg.solve(K, right)
        dx, dy = step[:n], step[n:]
        ds = -below - G @ dx
        dz = -(centre + z * ds) / s
        length = 1.0
        for value, change in ((s, ds), (z, dz)):
            falling = change < 0
            length = min(length, 0.99 * np.min(-value[falling] / change[falling], initial=np.inf))
        x, y, z, s = x + length * dx, y + length * dy, z + length * dz, s + length * ds
    return z > s


def program(Q, q, A, b, G, h):
    """The solution of min x'Qx/2 + q'x with Ax = b and Gx <= h, the gradient of |x|^2/2 by all six, and how far the program
    is from one whose solution has no derivative: the least of the slacks and multipliers that are not zero."""
    active = active_rows(Q, q, A, b, G, h)
    Q, q, A, b, G, h = (np.asarray(part, LONG) for part in (Q, q, A, b, G, h))
    n, m = len(q), len(b)
    C = np.concatenate([A, G[active]])
    K = np.block([[Q, C.T], [C, np.zeros((len(C), len(C)), LONG)]])
    inverse = np.linalg.inv(K.astype(np.float64))
    found = refined(lambda z: K @ z, inverse, np.concatenate([-q, b, h[active]]))
    x, multipliers = found[:n], found[n:]
    margin = min(np.min(multipliers[m:], initial=np.inf), np.min((h - G @ x)[~active], initial=np.inf))
    if not margin > 1e-6:
        raise ValueError(f"the program is {float(margin):.1e} from one whose solution has no derivative")
    back = refined(lambda z: K @ z, inverse, np.concatenate([x, np.zeros(len(C), LONG)]))
    u, v = back[:n], back[n:]
    of_C, of_c = -np.outer(multipliers, u) - np.outer(v, x), v
    of_G, of_h = np.zeros_like(G), np.zeros_like(h)
    of_G[active], of_h[active] = of_C[m:], of_c[m:]
    gradient = [symmetric(-np.outer(u, x)), -u, of_C[:m], of_c[:m], of_G, of_h]
    return x, gradient, float(margin)


def symmetric(M):
    """Q is symmetric, so only this part of a derivative by it means something; peers differ in the other."""
    return (M + M.T) / 2


def error(actual, expected):
    """The largest difference of two entries relative to the largest entry, of the part where that is largest."""
    worst = 0.0
    if len(actual) != len(expected):
        return np.inf
    for i, (a, e) in enumerate(zip(actual, expected)):
        a = np.asarray(a, LONG).reshape(e.shape)
        if i == 0 and len(expected) == 6:
            a = symmetric(a)
        off = np.max(np.abs(a - e), initial=0) / np.max(np.abs(e), initial=LONG(1e-300))
        worst = max(worst, float(off)) if np.isfinite(off) else np.inf
    return worst


# ---- whether this file is right ----


def differences(solution, parts, directions, h=1e-5):
    """The derivative of |x|^2/2 along the directions, by central differences in the long double solutions."""
    def value(t):
        x = solution(*[part + t * d for part, d in zip(parts, directions)])
        return x @ x / 2
    return (value(LONG(h)) - value(-LONG(h))) / (2 * LONG(h))


def selftest():
    random = np.random.default_rng(1)
    A = np.c_[np.ones(30), random.normal(size=(30, 3))]
    y, w = np.where(random.random(30) < 0.5, -1.0, 1.0), 0.5 + random.random(30)
    direction = random.normal(size=30)
    _, gradient = logistic(A, y, w)
    along = differences(lambda w: logistic(A, y, w)[0], [w], [direction])
    assert abs(along / (gradient[0] @ direction) - 1) < 1e-8, "logistic"

    n, m, p = 6, 2, 6
    M, x = random.normal(size=(n, n)), random.normal(size=n)
    A, G = random.normal(size=(m, n)), random.normal(size=(p, n))
    parts = [M.T @ M / n + 0.1 * np.eye(n), random.normal(size=n), A, A @ x, G, G @ x + random.random(p)]
    directions = [random.normal(size=part.shape) for part in parts]
    directions[0] = symmetric(directions[0])
    assert np.any(active_rows(*parts)), "no inequality is active"
    _, gradient, _ = program(*parts)
    solution = lambda *parts: program(*(np.asarray(part, np.float64) for part in parts))[0]
    along = differences(solution, parts, directions, 1e-4)
    assert abs(along / sum(np.sum(g * d) for g, d in zip(gradient, directions)) - 1) < 1e-6, "program"
    assert error(gradient, gradient) == 0 and error([2 * g for g in gradient], gradient) == 1, "error"
