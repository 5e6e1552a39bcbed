"""The map at one state, with its derivatives A = dF/dz and B = dF/dtheta by automatic differentiation: one evaluation for any
number of products."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from onestep._errors import MisuseError
from onestep.torch._lengths import norm_of_all, random_like
from onestep.torch._step import Step, refuse_hidden


class Point:
    """Tensors here belong to no transform and carry no derivative."""

    def __init__(self, step: Step, z: Tensor, theta: Sequence[Tensor], needed: Sequence[bool]) -> None:
        self.step, self.needed = step, list(needed)
        with torch.enable_grad():
            self.z = z.detach().requires_grad_()
            self.theta = [t.detach().requires_grad_(n) if n else t.detach() for t, n in zip(theta, needed)]
            self.wanted = [t for t, n in zip(self.theta, needed) if n]
            self.y = step(self.z, self.theta)
        if not self.y.requires_grad:  # a map that depends on nothing
            self._refuse_detached()
            with torch.enable_grad():
                self.y = self.y + 0 * self.z
        refuse_hidden(self.y, [self.z, *self.theta])
        self.products = 0
        self._adjoint: tuple[Tensor, Tensor] | None = None

    def _refuse_detached(self) -> None:
        with torch.no_grad():
            elsewhere = self.step(self.z + 0.1 * (1 + self.z.abs()) * random_like(self.z).sign().to(self.z.dtype), self.theta)
        if bool(((elsewhere != self.y) & elsewhere.isfinite() & self.y.isfinite()).any()):
            raise MisuseError(
                "[fixed_point] f depends on z, and what it returns carries no derivative: it is computed under torch.no_grad(), "
                "detached, or goes through another library. Without that it could be differentiated; if no derivative is "
                "wanted, call fixed_point under torch.no_grad()"
            )

    @property
    def value(self) -> Tensor:
        """F(z, theta)."""
        return self.y.detach()

    def vjp_x(self, w: Tensor) -> Tensor:
        """A^T w."""
        return self._gradients([self.z], w)[0]

    def vjp_theta(self, w: Tensor) -> list[Tensor]:
        """B^T w for the tensors that are needed."""
        return self._gradients(self.wanted, w)

    def vjp(self, w: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Both, for the cost of one."""
        of_z, *of_theta = self._gradients([self.z, *self.wanted], w)
        return of_z, of_theta

    def _gradients(self, inputs: list[Tensor], w: Tensor) -> list[Tensor]:
        if not inputs:
            return []
        self.products += 1
        return list(
            torch.autograd.grad(
                self.y, inputs, w.to(self.y.dtype), retain_graph=True, allow_unused=True, materialize_grads=True
            )
        )

    def jvp_x(self, v: Tensor) -> Tensor:
        """A v: the derivative by w of A^T w, which is linear in w."""
        self.products += 1
        if self._adjoint is None:
            with torch.enable_grad():
                w = torch.zeros_like(self.y).requires_grad_()
                (image,) = torch.autograd.grad(
                    self.y, [self.z], w, create_graph=True, allow_unused=True, materialize_grads=True
                )
            self._adjoint = (w, image)
        w, image = self._adjoint
        if not image.requires_grad:
            return torch.zeros_like(self.y)
        (out,) = torch.autograd.grad(
            image, [w], v.to(image.dtype), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return out

    def size_of_b(self) -> float:
        """An estimate of the Frobenius norm of B: rounding of B is relative to it, whatever the direction."""
        return norm_of_all(self.vjp_theta(random_like(self.y, 3)))
