"""Labels that are probably wrong: every one is judged by fits that it did not reach.

A label reaches a fit as that of a sample, or through what was thought of the labels of others. So fits are nested: plain fits
without three of five folds judge one of these for fits without the other two, which leave out what is unlikely, at most half of
each class. These judge one fold for the fit without the other, and that leaves out the suspects and judges its fold: 40 fits.
Samples with trusted labels join every fit but those without their fold.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

import onestep
from onestep.sklearn._folds import deal
from onestep.sklearn._label_noise import (
    LEAST,
    LabelNoise,
    confident_noise,
    estimate_noise,
    estimate_noise_and_power,
    estimate_power,
    most_probably_wrong,
    probably_right,
    tempered,
    without_noise,
)
from onestep.sklearn._problem import MOST_UNKNOWNS_OF_DENSE_NEWTON, FitFailed, Floats, Indices, Model, probabilities

FOLDS = 5
ROUGH, CLOSE = 1e-3, 1e-6  # tolerances of fits
ENOUGH_ERRORS = 3.0  # standard errors by which labels have to be more probable than labels drawn at random

Mask = NDArray[np.bool_]
FoldSet = frozenset[int]


@dataclasses.dataclass(frozen=True)
class BeforeAndAfter:
    """A mean over held-out samples of the model of all samples, and of that without the suspects.

    >>> found = model.suspects(); found.accuracy.after - found.accuracy.before, found.accuracy.standard_error
    """

    before: float
    after: float
    standard_error: float
    """Of the difference."""

    @property
    def difference(self) -> float:
        """After less before."""
        return self.after - self.before


@dataclasses.dataclass(frozen=True)
class Suspects:
    """Labels that are probably wrong. A suspect is worth a look, not proven wrong.

    >>> found = model.suspects()
    >>> if found.decided: look_at(found.order[:20])
    >>> better = model.fit(X[~found.suspects], y[~found.suspects]) if found.helps else model
    """

    decided: bool
    """Whether the model can judge labels at all: it has to find the labels of held-out samples more probable than labels drawn
    by the class frequencies, by three standard errors. Where not, nobody is a suspect, and the order says nothing."""
    order: Indices
    """Places of the training samples, the most suspicious label first."""
    suspects: Mask
    """Those for which another label is more probable, as many as give the largest expected F1 score."""
    quality: Floats
    """The probability of each sample's label under fits without it and without suspects. 1 for the only one of a class."""
    right: Floats
    """How probable it is that the label is right, calibrated, with the share of wrong labels taken into account."""
    other: Any
    """For each sample the most probable of the labels that are not its own."""
    noise: float
    """The share of labels that is estimated to be wrong."""
    noise_of_classes: Floats
    """How often samples of each class (a row) are given each label."""
    trusted: bool
    """Whether held-out samples have trusted labels."""
    accuracy: BeforeAndAfter
    """Of held-out samples; by trusted labels where there are some, else by labels as they stand."""
    loss: BeforeAndAfter
    """Minus the log probability of the same labels, for whose errors the loss of the model without suspects allows."""
    association: BeforeAndAfter
    """What `decided` rests on: `after` is by how much labels are more probable than labels drawn at random."""

    @property
    def helps(self) -> bool:
        """Whether the model without the suspects does better on held-out samples: in accuracy or loss by more than chance
        gives one time in ten, and in the other not worse by a standard error. Without trusted labels False says only that this
        cannot be shown."""
        errors, a, l = 1.28, self.accuracy, self.loss
        return self.decided and (
            (a.difference > errors * a.standard_error and -l.difference >= -l.standard_error)
            or (-l.difference > errors * l.standard_error and a.difference >= -a.standard_error)
        )

    @property
    def harms(self) -> bool:
        """Whether it does worse by more than two standard errors, which only trusted labels can tell: where labels of one class
        are wrong more often than those of another, a model of right labels is worse by the labels as they stand."""
        a, l = self.accuracy, self.loss
        return self.trusted and (a.difference < -2 * a.standard_error or l.difference > 2 * l.standard_error)


@dataclasses.dataclass(frozen=True)
class _Judgement:
    quality: Floats
    right: Floats
    other: Indices
    suspects: Mask
    noise: LabelNoise
    power: float
    plain_power: float = 1.0


class Cleaner:
    """`A` and `labels` are of the training samples and, behind them, the trusted ones; features are standardised."""

    def __init__(
        self, model: Model, A: Floats, labels: Indices, w: Floats, train: int, strength: Floats, rng: np.random.RandomState
    ) -> None:
        self.model, self.A, self.labels, self.w, self.train = model, A, labels, w, train
        self.classes = model.classes if model.loss == "softmax" else 2
        own = self._shared_by_twins(deal(labels[:train], FOLDS, rng))
        self.fold = np.concatenate([own, deal(labels[train:], FOLDS, rng)])
        self.judged = np.flatnonzero(own >= 0)
        start = np.zeros((len(labels), self.classes))
        self._fits = {t: _solver(model, A, strength, t).prepare(model.start, start) for t in (ROUGH, CLOSE)}
        self.plain: dict[FoldSet, Floats] = {}
        self.cleaner: dict[FoldSet, Floats] = {}  # without what is unlikely, or, with one fold held out, without suspects
        self.of_fold: dict[int, _Judgement] = {}

    def _shared_by_twins(self, fold: Indices) -> Indices:
        """Samples with the same features share a fold: none is judged by its copy."""
        rows = np.ascontiguousarray(self.A[: self.train])
        _, first, of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        shared = fold[first][of.ravel()]
        return np.where((fold >= 0) & (shared >= 0), shared, fold)

    def judge(self) -> _Judgement:
        everything = np.ones(self.train, dtype=bool)
        for size in (3, 2, 1):
            for held_out in _sets(size):
                known = [self.plain[held_out | {f}] for f in range(FOLDS) if f not in held_out] if size < 3 else []
                start = np.mean(known, axis=0) if known else self.model.start
                self.plain[held_out] = self._fit(held_out, everything, start, CLOSE if size == 1 else ROUGH)
        guesses: dict[FoldSet, LabelNoise] = {}
        for held_out in _sets(2):
            members, p = self._unseen(held_out, self.plain)
            guesses[held_out] = confident_noise(p, self.labels[members])
            used = ~self._unlikely(members, without_noise(p, guesses[held_out]))
            self.cleaner[held_out] = self._fit(held_out, used, self.plain[held_out], ROUGH)
        after: dict[FoldSet, Floats] = {}
        for f in range(FOLDS):
            held_out = frozenset({f})
            guess = LabelNoise.mean([noise for pair, noise in guesses.items() if f in pair])
            members, p = self._unseen(held_out, self.cleaner)
            plain_members, plain_p = self._unseen(held_out, self.plain)
            power = estimate_power(plain_p, self.labels[plain_members], 5)
            self.of_fold[f] = dataclasses.replace(self._judgement(members, p, guess), plain_power=power)
            after[held_out] = self._fit(held_out, ~self.of_fold[f].suspects, self.plain[held_out], CLOSE)
        self.cleaner.update(after)
        members, p = self._unseen(frozenset(), after)
        return self._judgement(members, p, LabelNoise.mean([j.noise for j in self.of_fold.values()]))

    def _fit(self, held_out: FoldSet, used: Mask, start: Floats, tolerance: float) -> Floats:
        allowed = ~np.isin(self.fold, list(held_out))
        trained = allowed.copy()
        trained[: self.train] &= used
        targets = np.eye(self.classes)[self.labels] * (self.w * trained)[:, None]
        # Where a fit would have no sample of a class, those that were left out come back: what it says about the class would
        # be that there is none. Where there is none at all its intercept would go to minus infinity.
        missing = targets.sum(axis=0) <= 0
        back = allowed & missing[self.labels]
        targets[back, self.labels[back]] = self.w[back]
        very_rare = 1e-6
        for k in np.flatnonzero(targets.sum(axis=0) <= 0):
            targets[:, k] = very_rare * targets.sum(axis=1)
        solution = self._fits[tolerance].solve(start, targets)
        if not np.isfinite(solution.x).all() or not (
            solution.status.is_solution or solution.status is onestep.Status.line_search_failed
        ):
            raise FitFailed(f"a fit without some folds ended with the status {solution.status.name}: give a larger penalty")
        return solution.x

    def _probabilities(self, x: Floats, which: Any) -> Floats:
        outputs = self.A[which] @ x
        return probabilities(outputs if outputs.ndim > 1 else np.column_stack([np.zeros(len(outputs)), outputs]))

    def _unseen(self, held_out: FoldSet, solutions: dict[FoldSet, Floats]) -> tuple[Indices, Floats]:
        """Training samples, and their probabilities under fits that hold out their fold, too."""
        members = self.judged[~np.isin(self.fold[self.judged], list(held_out))]
        p = np.empty((len(members), self.classes))
        for f in set(range(FOLDS)) - held_out:
            here = self.fold[members] == f
            p[here] = self._probabilities(solutions[held_out | {f}], members[here])
        return members, p

    def _unlikely(self, members: Indices, p: Floats) -> Mask:
        """Samples whose label another one exceeds in probability, the least probable half of a class at most: of a rare class
        that is hard to tell, most samples are not."""
        result = np.zeros(self.train, dtype=bool)
        labels = self.labels[members]
        own = p[np.arange(len(members)), labels]
        exceeded = _best_other(p, labels)[1] > own
        for k in range(self.classes):
            of_class = np.flatnonzero(labels == k)
            least = of_class[np.argsort(own[of_class], kind="stable")][: len(of_class) // 2]
            result[members[least]] = exceeded[least]
        return result

    def _judgement(self, members: Indices, p: Floats, guess: LabelNoise) -> _Judgement:
        labels = self.labels[members]
        noise, power = estimate_noise_and_power(p, labels, estimate_noise(p, labels, guess, 3), 10)
        right = probably_right(tempered(p, power), labels, noise)
        other, of_other = _best_other(p, labels)
        own = p[np.arange(len(members)), labels]
        quality, all_right = np.ones(self.train), np.ones(self.train)
        others, suspects = (self.labels[: self.train] == 0).astype(np.intp), np.zeros(self.train, dtype=bool)
        quality[members], all_right[members], others[members] = own, right, other
        suspects[members] = most_probably_wrong(right) & (of_other > own)
        return _Judgement(quality, all_right, others, suspects, noise, power)

    def compare(self) -> tuple[BeforeAndAfter, BeforeAndAfter, BeforeAndAfter]:
        """Accuracy, loss and association: each fold of the trusted samples, or where there are none of the training samples,
        scored by the models of the rest with and without the suspects among it."""
        trusted = self.train < len(self.labels)
        candidates = np.arange(self.train, len(self.labels)) if trusted else np.arange(self.train)
        rows: list[list[Floats]] = [[], [], [], []]
        for f, judgement in self.of_fold.items():
            held = candidates[self.fold[candidates] == f]
            if not len(held):
                continue
            labels, at = self.labels[held], np.arange(len(held))
            before = self._probabilities(self.plain[frozenset({f})], held)
            after = self._probabilities(self.cleaner[frozenset({f})], held) if judgement.suspects.any() else before
            if not trusted:
                before = tempered(before, judgement.plain_power)
                after = tempered(after, judgement.power) if judgement.suspects.any() else before
            hit_before, hit_after = before.argmax(axis=1) == labels, after.argmax(axis=1) == labels
            of_label = before[at, labels], after[at, labels]
            if not trusted and judgement.suspects.any():
                of_label = of_label[0], np.sum(after * judgement.noise.given[:, labels].T, axis=1)
            rows[0].append(np.column_stack([hit_before, hit_after]).astype(np.float64))
            rows[1].append(-np.log(np.maximum(np.column_stack(of_label), LEAST)))
            frequencies = np.bincount(np.delete(self.labels, held), minlength=self.classes) + 1.0
            for row, solutions in ((rows[2], self.plain), (rows[3], self.cleaner)):
                p = np.mean([self._probabilities(x, held) for s, x in solutions.items() if f in s], axis=0)
                logs = np.log(np.maximum(p, LEAST))
                row.append(np.column_stack([np.zeros(len(held)), logs[at, labels] - logs @ (frequencies / frequencies.sum())]))
        accuracy, loss, plain, without_suspects = (_paired(np.concatenate(row)) for row in rows)
        # The one that is farther from 0 in standard errors.
        better = plain.difference * without_suspects.standard_error < without_suspects.difference * plain.standard_error
        return accuracy, loss, without_suspects if better else plain


def _solver(model: Model, A: Floats, strength: Floats, tolerance: float) -> onestep.Solver:
    """Of fits whose parameters are the weights of each sample in each class."""

    def logistic(x: Any, targets: Any) -> Any:
        outputs = A @ x
        of_losses = np.sum(targets[:, 0] * np.logaddexp(0.0, outputs)) + np.sum(targets[:, 1] * np.logaddexp(0.0, -outputs))
        return of_losses + model.penalty(x, strength)

    def softmax(x: Any, targets: Any) -> Any:
        outputs = A @ x
        of_losses = np.sum(np.sum(targets, axis=1) * onestep.log_sum_exp(outputs, 1)) - np.sum(targets * outputs)
        return of_losses + model.penalty(x, strength)

    if model.loss == "logistic" and model.columns <= MOST_UNKNOWNS_OF_DENSE_NEWTON:
        return onestep.newton(logistic, tolerance=tolerance)
    return onestep.newton_cg(logistic if model.loss == "logistic" else softmax, tolerance=tolerance)


def _sets(size: int) -> list[FoldSet]:
    return [frozenset(folds) for folds in itertools.combinations(range(FOLDS), size)]


def _best_other(p: Floats, labels: Indices) -> tuple[Indices, Floats]:
    """The most probable class that is not the label, and its probability."""
    others = p.copy()
    others[np.arange(len(labels)), labels] = -1.0
    best = others.argmax(axis=1)
    return best, others[np.arange(len(labels)), best]


def _paired(pairs: Floats) -> BeforeAndAfter:
    differences = pairs[:, 1] - pairs[:, 0]
    deviation = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    return BeforeAndAfter(float(pairs[:, 0].mean()), float(pairs[:, 1].mean()), deviation / float(np.sqrt(len(pairs))))


def suspects(
    model: Model, train: tuple[Floats, Indices, Floats], trusted: tuple[Floats, Indices], names: Any, strength: Floats, rng: Any
) -> Suspects:
    """`train`: standardised features with their ones, classes, weights. `names` are of the classes."""
    A, labels, w = train
    if np.sum(np.bincount(labels) >= 2) < 2:
        raise ValueError("suspects: at least two classes need two samples or more, so that some can be held out")
    every, of_every = np.concatenate([A, trusted[0]]), np.concatenate([labels, trusted[1]])
    weights = np.concatenate([w, np.ones(len(trusted[1]))])
    cleaner = Cleaner(model, every, of_every, weights, len(labels), strength, rng)
    judgement = cleaner.judge()
    accuracy, loss, association = cleaner.compare()
    decided = association.after > ENOUGH_ERRORS * association.standard_error
    none = np.zeros(len(labels), dtype=bool)
    return Suspects(
        decided=decided,
        order=np.argsort(judgement.quality, kind="stable") if decided else np.arange(len(labels)),
        suspects=judgement.suspects if decided else none,
        quality=judgement.quality,
        right=judgement.right,
        other=names[judgement.other],
        noise=judgement.noise.share,
        noise_of_classes=judgement.noise.given,
        trusted=len(trusted[1]) > 0,
        accuracy=accuracy,
        loss=loss,
        association=association,
    )
