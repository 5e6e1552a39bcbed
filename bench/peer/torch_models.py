"""Equilibrium models in PyTorch, z = tanh(W z + U x + c) in single precision: the gradient of the mean of |z|^2/2 over the
batch by W, U and c. A contender takes nothing and returns a function of these and x that returns z. What its user writes is between
`user: begin` and `user: end`."""
import torch

TOLERANCE = 1e-5


def cell(z, x, W, U, c):
    return torch.tanh(z @ W.T + x @ U.T + c)


def ours(how, **loop):
    def make():
        import onestep
        from onestep.torch import fixed_point

        estimator = {"auto": None, "one-step": onestep.OneStep(), "implicit": onestep.Implicit(tolerance=1e-5)}[how]
        # user: begin onestep

        def model(x, W, U, c):
            inject = x @ U.T + c
            z0 = torch.zeros_like(inject)
            return fixed_point(lambda z, W, u: torch.tanh(z @ W.T + u), z0, (W, inject), estimator, **loop).z

        return model
        # user: end

    return make


def torchdeq(solver, **options):
    def make():
        from torchdeq import get_deq

        # user: begin torchdeq
        deq = get_deq(f_solver=solver, b_solver=solver, f_max_iter=500, b_max_iter=500, f_tol=TOLERANCE, b_tol=TOLERANCE,
                      f_stop_mode="rel", b_stop_mode="rel", **options)

        def model(x, W, U, c):
            inject = x @ U.T + c
            out, info = deq(lambda z: torch.tanh(z @ W.T + inject), torch.zeros_like(inject))
            return out[-1]

        return model
        # user: end

    return make


def unrolled():
    # user: begin unrolled
    def model(x, W, U, c):
        inject = x @ U.T + c
        z = torch.zeros_like(inject)
        while True:
            last, z = z, torch.tanh(z @ W.T + inject)
            if (z - last).norm() <= TOLERANCE * z.norm():
                return z

    return model
    # user: end


CONTENDERS = {
    ("onestep", "auto"): (ours("auto"), "fixed_point with its default options: Auto(1e-3), steps to 1e-5 of |z|"),
    ("onestep", "auto, anderson"): (ours("auto", anderson=5), "the same with anderson=5"),
    ("onestep", "implicit"): (ours("implicit"), "with Implicit(tolerance=1e-5)"),
    ("onestep", "one-step"): (ours("one-step"), "with OneStep()"),
    ("torchdeq", "implicit"): (torchdeq("fixed_point_iter", ift=True), "get_deq, ift=True, both solves to 1e-5 relative"),
    ("torchdeq", "implicit, anderson"): (torchdeq("anderson", ift=True), "the same by Anderson's method"),
    ("torchdeq", "one-step"): (torchdeq("fixed_point_iter", grad=1), "the phantom gradient of one step, the default"),
    ("autograd", "unrolled"): (unrolled, "the loop, to 1e-5, differentiated by torch"),
}


def data_of(n, k, count, rho, which):
    """x, W, U and c; the contraction factor of the map is rho where tanh is steepest."""
    from peer.data import gaussian

    W = torch.from_numpy(gaussian(31, n * n).reshape(n, n))
    W = rho * W / torch.linalg.matrix_norm(W, 2)
    x = torch.from_numpy(gaussian(32 + which, count * k).reshape(count, k))
    U, c = torch.from_numpy(gaussian(34, n * k).reshape(n, k)) * (0.3 / k**0.5), torch.from_numpy(gaussian(35, n)) * 0.1
    return x, W, U, c


def reference(size, which):
    """z and the gradient, in double precision: Newton's method and a dense solve for each item."""
    x, W, U, c = data_of(*size, which)
    W, U, c = (t.requires_grad_() for t in (W, U, c))
    with torch.no_grad():
        z = torch.zeros(len(x), len(c), dtype=torch.float64)
        for _ in range(20):
            y = cell(z, x, W, U, c)
            M = torch.eye(len(c), dtype=torch.float64) - (1 - y**2)[:, :, None] * W
            step = torch.linalg.solve(M, y - z)
            z = z + step
            if step.norm() <= 1e-14 * z.norm():
                break
        y = cell(z, x, W, U, c)
        M = torch.eye(len(c), dtype=torch.float64) - (1 - y**2)[:, :, None] * W
        u = torch.linalg.solve(M.mT, z / len(x))
    return z, torch.autograd.grad(cell(z, x, W, U, c), (W, U, c), u)
