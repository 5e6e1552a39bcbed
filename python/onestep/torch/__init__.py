"""Solvers as layers of PyTorch, and equilibrium models: derivatives of what an iteration converges to, inside autograd.

    project = onestep.torch.layer(onestep.quadratic_program(simplex), axes=(1,))
    project(torch.randn(64, 3, requires_grad=True)).sum().backward()

`layer` takes a solver of onestep, whose function is NumPy; `QP` takes the data of quadratic programs as tensors; `fixed_point`
takes a map that is written in torch and stays there, on any device and in any floating dtype; `foreign_step` makes a function
of torch a step of onestep's solvers.
"""

from __future__ import annotations

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("onestep.torch needs PyTorch: pip install torch") from error

from onestep.torch._fixed_point import FixedPoint as FixedPoint
from onestep.torch._fixed_point import fixed_point as fixed_point
from onestep.torch._foreign import foreign_step as foreign_step
from onestep.torch._layer import Layer as Layer
from onestep.torch._layer import Solved as Solved
from onestep.torch._layer import layer as layer
from onestep.torch._program import QP as QP

del _torch
