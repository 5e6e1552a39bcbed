"""Penalties by the derivative of the loss of held-out samples.

A penalty for each feature or class adapts to the samples that judge it, and overfits them as any fit does. So its logarithms
are drawn to a common level by a normal hyperprior, and whether and how widely they may spread is judged in nested folds, by
samples that neither a fit nor the search has seen. One penalty for all is kept unless the gain is more than two standard
errors.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from typing import Any, Literal

import numpy as np

import onestep
from onestep.sklearn._folds import Fold, Judged, folds_of, standard_error, weighted_mean
from onestep.sklearn._problem import FitFailed, Floats, Indices, Model, Samples

Kind = Literal["one", "per-feature", "per-class"]

DEVIATIONS = (1.0, 2.0, 4.0)  # of the hyperprior: standard deviations of the logarithms of penalties
LEVEL_DEVIATION = 2.0  # of the level around the best penalty for all
ROUGH = 1e-6  # tolerance of fits whose loss is compared and then forgotten
CERTAIN = 2.0  # standard errors


@dataclasses.dataclass(frozen=True)
class Spread:
    """What penalties that spread by `deviation` (0: one for all) came to on samples that their search had not seen.

    >>> estimator.search_.tried[0].loss      # of one penalty for all, on unseen samples
    """

    deviation: float
    loss: float
    gain: float
    """The loss with one penalty for all less this one."""
    gain_error: float
    """The standard error of the gain."""

    @property
    def is_certain(self) -> bool:
        """Whether the gain is more than two standard errors."""
        return self.gain > CERTAIN * self.gain_error


@dataclasses.dataclass(frozen=True)
class PenaltySearch:
    """How the penalty of a fitted estimator was found.

    >>> estimator.search_.kept               # "one" where "per-feature" gained nothing on unseen samples
    """

    asked: Kind
    kept: Kind
    loss: float
    """The mean loss of held-out samples that the search minimised: too good as an estimate of the loss of new ones."""
    tried: tuple[Spread, ...]
    """The spreads of penalties that were judged on unseen samples; empty where one penalty was asked for."""
    note: str
    """Why one penalty was kept without being judged, where that is so; else empty."""


@dataclasses.dataclass(frozen=True)
class _Prior:
    weight: float
    level_weight: float
    centre: float


@dataclasses.dataclass(frozen=True)
class _Found:
    theta: Floats  # (), or one for each feature or class
    loss: float


class Search:
    """Of the penalties of one problem. `samples` have distinct rows."""

    def __init__(self, model: Model, samples: Samples, folds: list[Fold], unit: float) -> None:
        self.one = dataclasses.replace(model, per_class=False)
        self.samples = samples
        self.folds = folds
        self.unit = unit
        self.bounds = (1e-5 * unit, 1e7 * unit)
        self.x: list[Floats] = [model.start for _ in folds]

    def shared(self, start: float | None = None) -> _Found:
        """One penalty: the best of powers of ten, and from there by hypergradients."""
        probed = self._probe() if start is None else None
        begin = start if probed is None else float(probed.theta)
        found = self._minimise(self.one, self.folds, np.asarray(begin), None)
        if found is None and probed is None:
            probed = self._probe()
        if found is None or (probed is not None and probed.loss < found.loss):
            assert probed is not None
            return probed
        return found

    def _probe(self) -> _Found:
        """The best of powers of ten. The largest come first, whose fits are quick, and those far below the best, whose fits
        are ill-conditioned, are not tried."""
        much_worse = 1.1
        evaluators = [
            self.one.solver(self.samples.some(fold.train), ROUGH).prepare(self.one.start, np.asarray(self.unit))
            for fold in self.folds
        ]
        best, last = _Found(np.asarray(self.unit), math.inf), math.inf
        x = list(self.x)
        for exponent in range(5, -4, -1):
            strength = np.asarray(self.unit * 10.0**exponent)
            judged = []
            for i, (evaluator, fold) in enumerate(zip(evaluators, self.folds)):
                solution = evaluator.solve(x[i], strength)
                if np.isfinite(solution.x).all():
                    x[i] = solution.x
                judged.append(Judged.of(self.one, self.samples, fold.valid, solution.x))
            loss = weighted_mean(judged)
            if loss < best.loss:
                best = _Found(strength, loss)
                self.x = list(x)
            if not math.isfinite(loss) or (loss > last and last > much_worse * best.loss):
                break
            last = loss
        if not math.isfinite(best.loss):
            raise FitFailed("no penalty from 1e-3 to 1e5 (times the mean square of a feature) gives a fit; give penalty=NUMBER")
        return best

    def spread(self, model: Model, deviation: float, shared: _Found, start: Floats) -> _Found | None:
        """Penalties for each feature or class, drawn to the best one for all."""
        return self._minimise(model, self.folds, start, self._prior(deviation, shared), self._tolerance(shared))

    def _effective_count(self) -> float:
        """Of the judged samples: that of samples of equal weight whose mean is as uncertain."""
        w = self.samples.w[np.concatenate([fold.valid for fold in self.folds])]
        return float(w.sum() ** 2 / np.sum(w**2))

    def _unit_of_loss(self, shared: _Found) -> float:
        """In which a loss is a negative log-likelihood: a squared error is one after division by the variance."""
        return 2 * max(shared.loss, 1e-12) if self.one.loss == "ridge" else 1.0

    def _prior(self, deviation: float, shared: _Found) -> _Prior:
        # The search minimises a mean over N samples, so the prior counts like one of them.
        of_a_sample = self._unit_of_loss(shared) / self._effective_count()
        return _Prior(of_a_sample / deviation**2, of_a_sample / LEVEL_DEVIATION**2, float(shared.theta))

    def _tolerance(self, shared: _Found) -> float:
        """To a fraction of what one sample says."""
        of_a_sample = 0.05 * self._unit_of_loss(shared) / self._effective_count()
        return float(np.clip(of_a_sample / max(shared.loss, 1e-300), 1e-6, 1e-2))

    def _minimise(
        self, model: Model, folds: list[Fold], start: Floats, prior: _Prior | None, tolerance: float = 1e-5
    ) -> _Found | None:
        """None where the search failed."""
        total = float(sum(self.samples.w[fold.valid].sum() for fold in folds))
        inner = [
            onestep.Inner(
                model.solver(self.samples.some(fold.train), ROUGH),
                x,
                _judging(model, self.samples.some(fold.valid), total, prior if i == 0 else None),
            )
            for i, (fold, x) in enumerate(zip(folds, self.x))
        ]
        parameter = onestep.Parameter.positive(np.clip(start, *self.bounds)).within(*self.bounds)
        try:
            outcome = onestep.minimise(inner, parameter, tolerance=tolerance, max_iterations=50, certified=False)
        except (onestep.NotConvergedError, onestep.NoDerivativeError):
            return None
        if not math.isfinite(outcome.value):
            return None
        return _Found(outcome.theta[0], outcome.value)


def _judging(model: Model, valid: Samples, total: float, prior: _Prior | None) -> Any:
    """The share of a fold in the loss of all held-out samples, and the hyperprior (once)."""
    weights = valid.w / total

    def loss(x: Any) -> Any:
        return np.sum(weights * model.losses(valid, x))

    if prior is None:
        return loss
    known = prior

    def loss_and_prior(x: Any, theta: Any) -> Any:
        each = np.log(theta)
        level = np.mean(each)
        spread = known.weight * np.sum(np.square(each - level))
        return loss(x) + 0.5 * (spread + known.level_weight * np.square(level - math.log(known.centre)))

    return loss_and_prior


@dataclasses.dataclass(frozen=True)
class Tuned:
    """Penalties, and the report of how they were found."""

    strength: Floats
    model: Model
    search: PenaltySearch


def tune(model: Model, samples: Samples, kind: Kind, classes: Indices, count: int, rng: np.random.RandomState, unit: float) -> Tuned:
    """The penalties of a problem whose samples are distinct. Raises ValueError where there are too few for folds."""
    folds = folds_of(classes, np.arange(len(samples.w)), count, rng)
    if not folds:
        raise ValueError(
            f"n_samples = {len(samples.w)}: too few distinct samples, or too few of most classes, to hold some out, and a "
            "penalty cannot be found; give penalty=NUMBER"
        )
    search = Search(model, samples, folds, unit)
    shared = search.shared()
    several = dataclasses.replace(model, per_class=kind == "per-class")
    size = several.classes if several.per_class else several.features
    if kind == "one" or size < 2:
        return Tuned(shared.theta, search.one, PenaltySearch(kind, "one", shared.loss, (), ""))
    choice = _Nested(several, samples, classes, folds, count, rng, unit).choose(shared, size)
    found = None
    if choice.deviation > 0:
        found = search.spread(several, choice.deviation, shared, np.full(size, float(shared.theta)))
        if found is None:
            choice = dataclasses.replace(choice, deviation=0.0, note="the search with all folds failed")
    if found is None:
        return Tuned(shared.theta, search.one, PenaltySearch(kind, "one", shared.loss, choice.tried, choice.note))
    # The value has the hyperprior in it; what is reported is the loss alone.
    prior = search._prior(choice.deviation, shared)
    logs = np.log(found.theta)
    added = prior.weight * np.sum((logs - logs.mean()) ** 2) + prior.level_weight * (logs.mean() - math.log(prior.centre)) ** 2
    loss = found.loss - 0.5 * float(added)
    return Tuned(found.theta, several, PenaltySearch(kind, kind, loss, choice.tried, ""))


@dataclasses.dataclass(frozen=True)
class _Choice:
    deviation: float
    tried: tuple[Spread, ...]
    note: str = ""


class _Nested:
    """Repeats searches with each fold left out, and judges them by that fold."""

    def __init__(
        self, model: Model, samples: Samples, classes: Indices, folds: list[Fold], count: int, rng: np.random.RandomState, unit: float
    ) -> None:
        self.model, self.samples, self.unit = model, samples, unit
        self.rounds = [(fold, folds_of(classes, fold.train, count, rng)) for fold in folds]

    def is_possible(self) -> bool:
        """Where classes are small, most of their samples are the only ones that are left, which no fold holds out."""
        few = 20
        enough = all(2 * sum(len(f.valid) for f in folds) >= len(outer.train) for outer, folds in self.rounds)
        return enough and sum(len(outer.valid) for outer, _ in self.rounds) >= few

    def choose(self, shared: _Found, size: int) -> _Choice:
        """Of the deviations whose gain is certain the smallest that is within a standard error of the best; or none."""
        if not self.is_possible():
            return _Choice(0.0, (), "there are too few samples, or too few of most classes, to leave some of them unseen")
        searches = [Search(self.model, self.samples, folds, self.unit) for _, folds in self.rounds]
        try:
            base = [search.shared(float(shared.theta)) for search in searches]
            judged = [self._judge(search.one, outer, found) for search, (outer, _), found in zip(searches, self.rounds, base)]
        except FitFailed as error:
            return _Choice(0.0, (), f"a fit failed in the nested folds: {error}")
        all_judged = [judged]
        tried = [Spread(0.0, weighted_mean(judged), 0.0, 0.0)]
        theta: list[Floats] = [np.full(size, float(found.theta)) for found in base]
        note = ""
        for deviation in DEVIATIONS:
            found = [s.spread(self.model, deviation, b, t) for s, b, t in zip(searches, base, theta)]
            if any(one is None for one in found):
                note = f"a search failed in the nested folds with the deviation {deviation:g}"
                break
            some = typing.cast(list[_Found], found)
            try:
                judged = [self._judge(self.model, outer, one) for (outer, _), one in zip(self.rounds, some)]
            except FitFailed as error:
                note = f"a fit failed in the nested folds: {error}"
                break
            gains = [a.less(b) for a, b in zip(all_judged[0], judged)]
            tried.append(Spread(deviation, weighted_mean(judged), weighted_mean(gains), standard_error(gains)))
            all_judged.append(judged)
            theta = [one.theta for one in some]
            if not tried[-1].loss < tried[-2].loss:
                break  # a wider one overfits more
        return _Choice(self._smallest_of_the_best(tried, all_judged), tuple(tried), note)

    def _judge(self, model: Model, outer: Fold, found: _Found) -> Judged:
        x = model.fit(self.samples.some(outer.train), found.theta).x
        return Judged.of(model, self.samples, outer.valid, x)

    @staticmethod
    def _smallest_of_the_best(tried: list[Spread], judged: list[list[Judged]]) -> float:
        certain = [i for i in range(1, len(tried)) if tried[i].is_certain]
        if not certain:
            return 0.0
        best = min(certain, key=lambda i: tried[i].loss)
        for i in certain:
            differences = [a.less(b) for a, b in zip(judged[i], judged[best])]
            if tried[i].loss - tried[best].loss <= standard_error(differences):
                return tried[i].deviation
        return tried[best].deviation
