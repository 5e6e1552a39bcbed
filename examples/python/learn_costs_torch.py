"""Learns the costs behind decisions that were seen: a quadratic program as the last layer of a model, trained by Adam."""

import torch
from torch import Tensor

import onestep.torch

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)

qp = onestep.torch.QP()
Q = torch.eye(4)


def decide(costs: Tensor) -> Tensor:
    """The allocation of one unit among four uses: the least quadratic cost, nothing negative."""
    x: Tensor = qp(Q=Q, q=costs, A=torch.ones(1, 4), b=torch.ones(1), lo=0.0)
    return x


hidden = torch.nn.Linear(3, 4)  # how costs depend on what is known
situations = torch.randn(128, 3)
decisions = decide(hidden(situations)).detach()

model = torch.nn.Linear(3, 4)
optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
losses = []
for epoch in range(120):
    optimiser.zero_grad()
    loss = (decide(model(situations)) - decisions).square().sum(dim=1).mean()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
print(f"mean squared distance to the decisions: {losses[0]:.4f} at first, {losses[-1]:.2e} after {len(losses)} epochs")
assert losses[-1] < 1e-3 * losses[0]

unseen = torch.randn(64, 3)
distance = (decide(model(unseen)) - decide(hidden(unseen))).square().sum(dim=1).mean().item()
print(f"in situations that it has not seen: {distance:.2e}")
assert distance < 1e-2 * losses[0]
