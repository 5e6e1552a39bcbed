"""Batches of dense quadratic programs in PyTorch, min x'Qx/2 + q'x with Ax = b and Gx <= h, as layers: the gradient of the sum of
|x|^2/2 by all data. A contender takes the sizes and returns a function of the tensors Q, q, A, b, G, h that returns x. What its
user writes is between `user: begin` and `user: end`."""
import torch


def ours(estimator):
    def make(n, m, p, count):
        import onestep.torch

        how = {"one-step": onestep.OneStep(), "implicit": onestep.Implicit()}[estimator]
        # user: begin onestep
        qp = onestep.torch.QP(estimator=how)
        return lambda Q, q, A, b, G, h: qp(Q=Q, q=q, A=A, b=b, G=G, u=h)
        # user: end

    return make


def qpth(n, m, p, count):
    from qpth.qp import QPFunction

    # user: begin qpth
    solve = QPFunction(eps=1e-9, verbose=-1, check_Q_spd=False, maxIter=50)
    return lambda Q, q, A, b, G, h: solve(Q, q, G, h, A, b)
    # user: end


def qplayer(n, m, p, count):
    from proxsuite.torch.qplayer import QPFunction

    # user: begin qplayer
    solve = QPFunction(eps=1e-9, eps_backward=1e-9, maxIter=1000)
    below = torch.full((count, p), -1e20, dtype=torch.float64)
    return lambda Q, q, A, b, G, h: solve(Q, q, A, b, G, below, h)[0]
    # user: end


def moreau(n, m, p, count):
    import moreau
    from moreau.torch import Solver

    # user: begin moreau
    solver = Solver(n=n, m=m + p, P_row_offsets=torch.arange(n + 1) * n, P_col_indices=torch.arange(n).repeat(n),
                    A_row_offsets=torch.arange(m + p + 1) * n, A_col_indices=torch.arange(n).repeat(m + p),
                    cones=moreau.Cones(num_zero_cones=m, num_nonneg_cones=p),
                    settings=moreau.Settings(batch_size=count, enable_grad=True))

    def solve(Q, q, A, b, G, h):
        C, right = torch.cat([A, G], dim=1).flatten(1), torch.cat([b, h], dim=1)
        return solver.solve(Q.flatten(1), C, q, right).x

    return solve
    # user: end


CONTENDERS = {
    ("onestep", "one-step"): (ours("one-step"), "onestep.torch.QP with its default options, to residuals and a gap of 1e-9"),
    ("onestep", "implicit"): (ours("implicit"), "the same with Implicit()"),
    ("qpth", "implicit"): (qpth, "QPFunction with eps 1e-9"),
    ("qplayer", "implicit"): (qplayer, "ProxQP's QPFunction, to 1e-9, derivatives to 1e-9"),
    ("moreau", "implicit"): (moreau, "moreau.torch.Solver with its default tolerances, structure given once"),
}


def data_of(n, m, p, count, which):
    """Two batches are enough for each call to have other data than the one before: peers may keep what has not changed."""
    import numpy as np
    from peer.rows_qp import many_programs

    Q, A, G, q, b, h = many_programs(n, m, p, count)
    factor = (1.0, 1.25)[which]
    stacked = [np.repeat(part[None], count, axis=0) for part in (factor * Q, A, G)]
    return stacked[0], factor * q, stacked[1], b, stacked[2], h


def reference(size, which, items):
    """x and the six parts of the gradient, of the first programs of the batch."""
    from peer import reference

    parts = data_of(*size, which)
    found = [reference.program(*(part[i] for part in parts)) for i in range(items)]
    return [x for x, _, _ in found], [gradient for _, gradient, _ in found]
