"""onestep.torch.QP: batches of dense quadratic programs."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import onestep
from onestep import Status

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import onestep.torch  # noqa: E402

DOUBLE = torch.float64


@pytest.fixture
def qp():
    return onestep.torch.QP()


def random_programs(count, n=6, rows=8, equalities=2):
    """Strictly convex programs with a point inside, some of whose rows are active."""
    generator = torch.Generator().manual_seed(5)

    def draw(*shape):
        return torch.randn(*shape, dtype=DOUBLE, generator=generator)

    L, x = draw(count, n, n), draw(count, n)
    A, G = draw(count, equalities, n), draw(count, rows, n)
    return {
        "Q": L @ L.mT + torch.eye(n, dtype=DOUBLE),
        "q": 3 * draw(count, n),
        "A": A,
        "b": (A @ x[..., None])[..., 0],
        "G": G,
        "u": (G @ x[..., None])[..., 0] + 0.5,
    }


C = torch.tensor([0.9, 0.4, -0.5], dtype=DOUBLE)
PROJECTED = torch.tensor([0.75, 0.25, 0.0], dtype=DOUBLE)
JACOBIAN = torch.tensor([[0.5, -0.5, 0], [-0.5, 0.5, 0], [0, 0, 0]], dtype=DOUBLE)


def test_projection_on_the_simplex_has_its_closed_form(qp):
    def project(c):
        return qp(Q=torch.eye(3), q=-c, A=torch.ones(1, 3), b=1.0, lo=0.0)

    torch.testing.assert_close(project(C), PROJECTED, rtol=0, atol=1e-9)
    torch.testing.assert_close(torch.func.jacrev(project)(C), JACOBIAN, rtol=0, atol=1e-7)
    torch.testing.assert_close(torch.func.jacfwd(project)(C), JACOBIAN, rtol=0, atol=1e-7)
    many = torch.func.vmap(torch.func.jacrev(project))(torch.stack([C, 2 * C]))
    torch.testing.assert_close(many[0], JACOBIAN, rtol=0, atol=1e-7)


def test_each_of_a_batch_is_what_the_library_finds_for_it_alone(qp):
    data = random_programs(5)
    solved = qp.solve(**data)
    assert [tuple(part.shape) for part in solved.state] == [(5, 6), (5, 2), (5, 8), (5, 6)]
    assert solved.converged.all()
    active = 0
    for i in range(5):
        alone = onestep.solve_qp(**{name: part[i].numpy() for name, part in data.items()})
        np.testing.assert_allclose(solved.x[i].numpy(), alone.x, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(solved.state[1][i].numpy(), alone.y, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(solved.state[2][i].numpy(), alone.z, rtol=1e-7, atol=1e-7)
        active += int((abs(alone.z) > 1e-6).sum())
    assert active >= 5


def test_gradients_by_all_data_are_right(qp):
    data = {name: part.requires_grad_() for name, part in random_programs(2, n=4, rows=4, equalities=1).items()}

    def solve(Q, q, A, b, G, u):
        return qp(Q=(Q + Q.mT) / 2, q=q, A=A, b=b, G=G, u=u)

    assert torch.autograd.gradcheck(solve, tuple(data.values()), check_forward_ad=True, atol=1e-4)


def test_shared_data_get_the_sum_over_the_batch(qp):
    data = random_programs(4)
    q, Q = data["q"], data["Q"][0].clone().requires_grad_()
    qp(Q, q, lo=-1.0).square().sum().backward()
    each = [torch.func.grad(lambda Q, one=one: qp(Q, one, lo=-1.0).square().sum())(Q.detach()) for one in q]
    torch.testing.assert_close(Q.grad, torch.stack(each).sum(dim=0), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(Q.grad, Q.grad.mT)


def test_second_derivatives_pass_gradgradcheck(qp):
    q = random_programs(2, n=3)["q"].requires_grad_()
    Q = random_programs(1, n=3)["Q"][0].requires_grad_()
    assert torch.autograd.gradgradcheck(lambda Q, q: qp((Q + Q.mT) / 2, q, lo=-0.3), (Q, q), atol=1e-4)


def test_statuses_tell_infeasible_unbounded_and_not_convex(qp):
    keeps = onestep.torch.QP(on_error="nan")
    Q = torch.tensor([[[1.0]], [[0.0]], [[-1.0]]], dtype=DOUBLE)
    solved = keeps.solve(Q=Q, q=torch.ones(1), hi=1.0)
    assert [Status(int(s)) for s in solved.status] == [Status.converged, Status.unbounded, Status.not_convex]
    assert solved.x[0].item() == pytest.approx(-1.0)
    infeasible = keeps.solve(Q=torch.eye(2), A=torch.ones(2, 2), b=torch.tensor([1.0, 2.0]))
    assert Status(int(infeasible.status)) is Status.infeasible
    with pytest.raises(onestep.NotConvergedError, match="1 of 3|2 of 3"):
        qp(Q=Q, q=torch.ones(1), hi=1.0)


def test_a_degenerate_program_has_a_refused_certificate_and_an_ordinary_one_a_bound(qp):
    ones = torch.ones(3)
    certificate = qp.certificate(Q=torch.eye(3), q=-C, A=torch.ones(1, 3), b=1.0, lo=0.0, cotangent=C)
    assert certificate.bound < 1e-6
    # 0.5 is where the third coordinate leaves its bound: strict complementarity fails.
    degenerate = qp.certificate(Q=torch.eye(3), q=-ones, lo=1.0, cotangent=ones)
    assert degenerate.basis == onestep.Certificate.Basis.refused
    assert len(qp.certificate(Q=torch.eye(3), q=-torch.stack([C, C]), cotangent=ones)) == 2


def test_float32_data_are_solved_in_double_precision():
    data = {name: part.float().requires_grad_() for name, part in random_programs(3).items()}
    same = onestep.torch.QP(dtype="input")
    x = same(**data)
    assert x.dtype is torch.float32
    x.sum().backward()
    assert all(part.grad.dtype is torch.float32 and part.grad.isfinite().all() for part in data.values())
    exact = onestep.torch.QP()(**{name: part.detach().double() for name, part in data.items()})
    torch.testing.assert_close(x, exact.float(), rtol=0, atol=0)


def test_a_layer_of_programs_can_be_copied_pickled_and_trained():
    class Projection(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qp = onestep.torch.QP(dtype="input", tolerance=1e-10)
            self.weights = torch.nn.Parameter(torch.full((3,), 1.0))

        def forward(self, c):
            Q = torch.diag(self.weights.exp())
            return self.qp(Q, -c, A=torch.ones(1, 3), b=1.0, lo=0.0)

    torch.manual_seed(0)
    model = Projection()
    c, target = torch.randn(64, 3), torch.diag(torch.tensor([1.0, 2.0, 0.5]))
    with torch.no_grad():
        goal = model.qp(target, -c, A=torch.ones(1, 3), b=1.0, lo=0.0)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(40):
        optimiser.zero_grad()
        losses.append((model(c) - goal).square().mean())
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < 0.05 * losses[0]
    assert torch.equal(copy.deepcopy(model)(c), model(c))
    again = pickle.loads(pickle.dumps(model.qp))
    assert "1e-10" in repr(again)
    assert torch.equal(again(torch.eye(3), -c), model.qp(torch.eye(3), -c))


def test_data_that_do_not_fit_are_refused_by_name(qp):
    for data, message in (
        ({"Q": torch.eye(3), "q": torch.ones(2)}, "Q has shape"),
        ({"A": torch.ones(1, 3), "q": torch.ones(3)}, "A and b belong together"),
        ({"l": torch.ones(2), "q": torch.ones(3)}, "G and l or u belong together"),
        ({"q": torch.ones(3), "G": torch.ones(3), "u": 1.0}, "G has shape"),
        ({"q": torch.ones(3), "G": torch.ones(2, 3), "u": torch.ones(3)}, "u has shape"),
        ({}, "at least Q or q"),
        ({"Q": torch.eye(3).to_sparse(), "q": torch.ones(3)}, "to_dense"),
        ({"Q": torch.ones(2, 3, 3), "q": torch.ones(4, 3)}, "do not fit each other"),
    ):
        with pytest.raises(onestep.MisuseError, match=message):
            qp(**data)
    with pytest.raises(TypeError, match="no option 'tol'"):
        onestep.torch.QP(tol=1e-3)
    with pytest.raises(TypeError, match="unexpected keyword"):
        qp(H=torch.eye(3))
