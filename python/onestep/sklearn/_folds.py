"""Folds of distinct samples, and means over samples that were held out."""

from __future__ import annotations

import dataclasses

import numpy as np

from onestep.sklearn._problem import Floats, Indices, Model, Samples, floats


@dataclasses.dataclass(frozen=True)
class Fold:
    """The places of samples that a fit has, and of those that judge it."""

    train: Indices
    valid: Indices


def deal(classes: Indices, count: int, rng: np.random.RandomState) -> Indices:
    """The fold of each sample, each class dealt out evenly; -1 for the only sample of a class, which is in every fit."""
    fold = np.full(len(classes), -1, dtype=np.intp)
    dealt = 0
    order = rng.permutation(len(classes))
    for k in np.unique(classes):
        members = order[classes[order] == k]
        if len(members) > 1:
            fold[members] = (dealt + np.arange(len(members))) % count
            dealt += len(members)
    return fold


def folds_of(classes: Indices, which: Indices, count: int, rng: np.random.RandomState) -> list[Fold]:
    """The folds of a cross-validation of some samples; none where fewer than two folds have samples that judge."""
    fold = deal(classes[which], count, rng)
    folds = [Fold(which[fold != f], which[fold == f]) for f in range(count)]
    folds = [f for f in folds if len(f.valid) > 0 and len(f.train) > 0]
    return folds if len(folds) > 1 else []


def distinct(X: Floats, y: Floats, w: Floats) -> tuple[Indices, Floats]:
    """The places of one of each kind of identical samples, in an order that depends on nothing but their values, and the sums
    of weights. Folds of these are those of samples repeated as often as their weights say, and no sample is held out of a fit
    that has its twin."""
    rows = np.ascontiguousarray(np.column_stack([X, y]) + 0.0)  # -0 becomes 0
    # As whole numbers whose bytes, the most significant first, are in the order of the values: scaled samples keep theirs.
    bits = rows.view(np.int64)
    ordered = np.where(bits < 0, ~bits, bits ^ np.int64(np.iinfo(np.int64).min)).astype(">i8")
    bytes_of_rows = ordered.view(np.dtype((np.void, ordered.dtype.itemsize * ordered.shape[1]))).ravel()
    _, first, of = np.unique(bytes_of_rows, return_index=True, return_inverse=True)
    return first, floats(np.bincount(of, weights=w, minlength=len(first)))


@dataclasses.dataclass(frozen=True)
class Judged:
    """The losses of held-out samples."""

    losses: Floats
    weights: Floats

    @staticmethod
    def of(model: Model, samples: Samples, which: Indices, x: Floats) -> Judged:
        return Judged(model.loss_values(samples.some(which), x), samples.w[which])

    def less(self, other: Judged) -> Judged:
        """The differences, sample by sample."""
        return Judged(self.losses - other.losses, self.weights)


def weighted_mean(all_judged: list[Judged]) -> float:
    """Over the samples of all folds."""
    total = sum(float(j.weights.sum()) for j in all_judged)
    return sum(float(j.weights @ j.losses) for j in all_judged) / total


def standard_error(all_judged: list[Judged]) -> float:
    """Of the mean. Samples of a fold share a model, so that they may vary together: where the means of folds vary more than
    independent samples would, that counts."""
    values = np.concatenate([j.losses for j in all_judged])
    weights = np.concatenate([j.weights for j in all_judged])
    means = np.array([j.weights @ j.losses / j.weights.sum() for j in all_judged])
    sizes = np.array([j.weights.sum() for j in all_judged])
    return max(_error_of_mean(values, weights), _error_of_mean(means, sizes))


def _error_of_mean(values: Floats, weights: Floats) -> float:
    if len(values) < 2:
        return 0.0
    mean = weights @ values / weights.sum()
    squares = float(np.sum(weights**2 * (values - mean) ** 2)) * len(values) / (len(values) - 1)
    return float(np.sqrt(squares)) / float(weights.sum())
