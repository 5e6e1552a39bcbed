"""What each training sample does to the loss of validation samples."""

from __future__ import annotations

import dataclasses

import numpy as np

import onestep
from onestep.sklearn._fitted import Fitted
from onestep.sklearn._problem import Fit, FitFailed, Floats, Indices, Samples, floats
from onestep.sklearn._standard_errors import MOST_UNKNOWNS, inverse_of

MOST_NUMBERS = 5_000_000  # of an array that is made on the way


@dataclasses.dataclass(frozen=True)
class Retrained:
    """A fit without one of the training samples, beside what was predicted of it.

    >>> [(r.sample, r.removal, r.actual) for r in model.influence(X_val, y_val, verify=5).verified]
    """

    sample: int
    first_order: float
    """The change of the validation loss that the derivative predicts."""
    removal: float
    """The change that approximate leave-one-out predicts."""
    actual: float
    """The change after training again without the sample (with the same penalty)."""


@dataclasses.dataclass(frozen=True)
class Influence:
    """What each training sample does to the mean loss of validation samples. The penalty is taken as it is.

    >>> effects = model.influence(X_val, y_val)
    >>> effects.order[:10], effects.removal[effects.order[:10]]     # the samples that do most harm
    """

    loss: float
    """The mean loss of the validation samples."""
    derivative: Floats
    """Of that by the weight of each training sample: exact but for `certificate.bound`. NaN for samples of weight 0."""
    removal: Floats
    """How the loss is predicted to change when a sample is left out: negative means that the sample does harm. One Newton step
    with the sample's leverage: exact for ridge. NaN where the fit without the sample would not be unique."""
    standard_error: Floats
    """Of `removal`, over the validation samples: what lies within two of them cannot be told from chance."""
    certificate: onestep.Certificate
    """How wrong `derivative` can be, in the Euclidean norm over all samples."""
    verified: tuple[Retrained, ...]
    """The samples with the largest effects, trained again without."""
    weight: Floats = dataclasses.field(repr=False)
    """Of each training sample in the fit."""

    @property
    def first_order(self) -> Floats:
        """The change that the derivative predicts for leaving a sample out: minus its weight times the derivative. It is too
        small by about the sample's leverage, which is much for few samples: `removal` allows for it."""
        return floats(np.where(self.weight > 0, -self.weight * self.derivative, 0.0))

    @property
    def order(self) -> Indices:
        """Places of the samples, the one that does most harm first."""
        return np.argsort(np.where(np.isnan(self.removal), np.inf, self.removal), kind="stable")

    @property
    def is_certain(self) -> np.typing.NDArray[np.bool_]:
        """Whether the effect of a sample is beyond two standard errors. Of N samples without any effect 5 % are, too."""
        return np.abs(self.removal) > 2 * self.standard_error


def influence(fitted: Fitted, samples: Samples, judged: Samples, verify: int) -> Influence:
    """`judged` are the validation samples, in the scaling of the fit."""
    model = fitted.model
    unit = fitted.target_scale**2  # of a loss
    values = model.loss_values(judged, fitted.x)
    solution = model.weighted_solver(samples, fitted.strength, 1e-12).solve(fitted.x, samples.w)
    if not solution.status.is_solution:  # where the fit ended at rounding, so does this
        solution = solution.even_if_unconverged()
    count = len(values)
    first, _ = model.output_derivatives(judged, fitted.x)
    cotangent = (judged.A.T @ first).reshape(model.shape) / count * unit
    derivative = floats(solution.vjp(cotangent))
    removal, error = _removals(fitted, samples, judged)
    predicted = Influence(
        loss=float(values.mean()) * unit,
        derivative=_spread(fitted, derivative, np.nan),
        removal=_spread(fitted, removal * unit, 0.0),
        standard_error=_spread(fitted, error * unit, 0.0),
        certificate=solution.certificate(cotangent),
        verified=(),
        weight=_spread(fitted, samples.w, 0.0),
    )
    if verify <= 0:
        return predicted
    largest = np.argsort(-np.nan_to_num(np.abs(removal), nan=np.inf), kind="stable")[:verify]
    again = tuple(_retrained(fitted, samples, judged, int(i), predicted) for i in largest)
    return dataclasses.replace(predicted, verified=again)


def _spread(fitted: Fitted, values: Floats, otherwise: float) -> Floats:
    """From the samples with a positive weight to all that fit was given."""
    spread = np.full(fitted.given, otherwise)
    spread[fitted.used] = values
    return spread


def _removals(fitted: Fitted, samples: Samples, judged: Samples) -> tuple[Floats, Floats]:
    """Approximate leave-one-out. The Hessian without a sample differs by a matrix of rank K, so that one factorisation serves
    all samples: the step is w H^-1 (a x t) with t = (I - w C M)^-1 r, where r and C are the first and second derivatives of
    the sample's loss by its outputs, and M = (a x I)' H^-1 (a x I) its leverage."""
    model = fitted.model
    m, K = model.columns, model.classes
    if m * K > MOST_UNKNOWNS:
        raise ValueError(f"the effects of removal need the inverse of a matrix of {m * K} coefficients: at most {MOST_UNKNOWNS}")
    inverse = inverse_of(model.hessian(samples, fitted.strength, fitted.x)).reshape(m, K, m, K)
    first, second = model.output_derivatives(samples, fitted.x)
    before = judged.A @ fitted.x
    loss_before = model.loss_of_outputs(before, judged.y)
    removal, error = np.empty(len(samples.w)), np.empty(len(samples.w))
    chunk = max(1, MOST_NUMBERS // max(K * K * m, len(loss_before) * K))
    for begin in range(0, len(samples.w), chunk):
        part = slice(begin, begin + chunk)
        w = samples.w[part, None, None]
        along = np.einsum("im,mkjl->ikjl", samples.A[part], inverse, optimize=True)
        leverage = np.einsum("ikjl,ij->ikl", along, samples.A[part])
        system = np.eye(K) - w * second[part] @ leverage
        unique = np.linalg.svd(system, compute_uv=False)[:, -1] > 1e-9
        system[~unique] = np.eye(K)
        t = np.linalg.solve(system, first[part][:, :, None])
        steps = w * np.einsum("ikjl,ik->ijl", along, t[:, :, 0])  # (chunk, m, K)
        change = np.einsum("vm,imk->ivk", judged.A, steps, optimize=True)
        outputs = before + (change if model.loss == "softmax" else change[:, :, 0])
        differences = model.loss_of_outputs(outputs, judged.y) - loss_before
        removal[part] = np.where(unique, differences.mean(axis=1), np.nan)
        several = len(loss_before) > 1
        deviation = differences.std(axis=1, ddof=1) if several else np.full(len(differences), np.nan)
        error[part] = np.where(unique, deviation / np.sqrt(len(loss_before)), np.nan)
    return removal, error


def _retrained(fitted: Fitted, samples: Samples, judged: Samples, i: int, predicted: Influence) -> Retrained:
    place = int(fitted.used[i])
    rest = samples.some(np.delete(np.arange(len(samples.w)), i))
    try:
        fit: Fit | None = fitted.model.fit(rest, fitted.strength, fitted.x)
    except FitFailed:
        fit = None
    after = np.nan if fit is None else float(fitted.model.loss_values(judged, fit.x).mean()) * fitted.target_scale**2
    return Retrained(place, float(predicted.first_order[place]), float(predicted.removal[place]), after - predicted.loss)
