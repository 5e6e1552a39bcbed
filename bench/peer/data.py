"""The data of the rows of `onestep_bench`, as bench/data.h makes it bit for bit, and what the results have to be."""
import numpy as np

CHAIN_A, CHAIN_B = 0.7, 0.2


def random_bits(stream, index):
    with np.errstate(over="ignore"):
        z = (np.uint64(stream) << np.uint64(40)) + (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(stream, count):
    return (random_bits(stream, np.arange(count)) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def gaussian(stream, count):
    total = np.zeros(count, np.int64)
    for k in range(3):
        bits = random_bits(stream, 3 * np.arange(count) + k)
        for shift in (0, 16, 32, 48):
            total += (bits >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64)
    return (total - 6 * 65535).astype(np.float64) * 2.0**-16


def logistic_data(N, n):
    y = np.where(np.arange(N) % 2 == 0, 1.0, -1.0)
    mu = 1.0 / np.sqrt(np.float64(n))
    A = gaussian(1, N * n).reshape(N, n) + np.where(y > 0, mu, -mu)[:, None]
    return A, y, 0.5 + uniform(2, N), gaussian(3, n) * mu, gaussian(4, n)


def logistic_with_intercept(N, n):
    A, y, w, _, _ = logistic_data(N, n)
    A[:, 0] = 1
    return A, y, w


def qp_data(n, m, p):
    """Q, q, A, b, G, h. Sums of products of these Gaussians are exact in any order, see bench/data.h."""
    M, x = gaussian(6, n * n).reshape(n, n), gaussian(7, n)
    Q = (M.T @ M) / n
    Q[np.diag_indices(n)] += 0.1
    A, G = gaussian(9, m * n).reshape(m, n), gaussian(10, p * n).reshape(p, n)
    return Q, gaussian(8, n), A, A @ x, G, G @ x + uniform(11, p)


def chain_data(count):
    return 4.0 * uniform(5, count) - 2.0


# ---- what the results have to be ----


def expected_newton(A, y, w, x, v):
    z = -y * (A @ x)
    s = 1 / (1 + np.exp(-z))
    value = w @ np.logaddexp(0, z) + 0.1 * x @ x
    curvature = s * (1 - s)
    H = (A * (w * curvature)[:, None]).T @ A + 0.2 * np.eye(len(x))
    step, u = np.linalg.solve(H, np.stack([A.T @ (-y * w * s) + 0.2 * x, v], 1)).T
    return value, x - step, -(A @ u) * (-y * s - curvature * (A @ step))


def expected_chain(x):
    return np.sqrt(1 + np.tanh(CHAIN_A * x + CHAIN_B) ** 2) * np.exp(x)


def expected_solution(A, y, w):
    """What Newton's method converges to, and the gradient of |x|^2/2 by the weights."""
    x = np.zeros(A.shape[1])
    penalty = np.r_[0.0, np.full(len(x) - 1, 0.2)]
    for _ in range(30):
        s = 1 / (1 + np.exp(y * (A @ x)))
        H = (A * (w * s * (1 - s))[:, None]).T @ A + np.diag(penalty)
        step = np.linalg.solve(H, A.T @ (-y * w * s) + penalty * x)
        x = x - step
        if np.linalg.norm(step) <= 1e-13 * np.linalg.norm(x):
            break
    return x, (A @ np.linalg.solve(H, x)) * y * s


def check(what, actual, expected, tolerance=1e-8):
    error = np.max(np.abs(np.ravel(actual) - np.ravel(expected))) / np.max(np.abs(expected))
    if not error <= tolerance:
        raise SystemExit(f"{what} is wrong: relative error {error:.2g}")
