"""Which labels are wrong, judged by the probabilities that fits without the sample give to the classes. Each class has its own
probabilities of being given each label, whatever the features."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from onestep.sklearn._problem import Floats, Indices, floats

LEAST = 1e-12  # probability: a class is never impossible
PRIOR = 20.0  # samples of each class that have noise as it is on the whole


@dataclasses.dataclass(frozen=True)
class LabelNoise:
    """How often samples of each class are given each label."""

    given: Floats  # P(label | class), a row for each class
    share: float  # of all labels, those that are wrong

    @staticmethod
    def even(classes: int, share: float) -> LabelNoise:
        """A share of wrong labels in each class, all other labels alike."""
        wrong = float(np.clip(share, 1e-4, 0.9))
        given = np.full((classes, classes), wrong / (classes - 1))
        np.fill_diagonal(given, 1 - wrong)
        return LabelNoise(given, wrong)

    @staticmethod
    def of_counts(counts: Floats) -> LabelNoise:
        """Counts by class and label, which need not be whole; classes with few samples take the noise of all."""
        classes = len(counts)
        total = counts.sum()
        even = LabelNoise.even(classes, float((total - np.trace(counts)) / total) if total > 0 else 0.0)
        size = counts.sum(axis=1, keepdims=True)
        return LabelNoise((counts + PRIOR * even.given) / (size + PRIOR), even.share)

    @staticmethod
    def mean(every: list[LabelNoise]) -> LabelNoise:
        return LabelNoise(floats(np.mean([n.given for n in every], axis=0)), float(np.mean([n.share for n in every])))


def confident_noise(p: Floats, labels: Indices) -> LabelNoise:
    """The first guess, by confident learning (Northcutt, Jiang, Chuang 2021): a sample counts for the most probable of the
    classes that are as probable as they are on average for samples with that label, and more probable than its own; else for
    its own. It does not need calibrated probabilities."""
    rows, classes = np.arange(len(labels)), p.shape[1]
    own = p[rows, labels]
    size = np.bincount(labels, minlength=classes)
    usual = np.bincount(labels, weights=own, minlength=classes)
    candidate = np.where((size > 0) & (p * size >= usual) & (p > own[:, None]), p, -1.0)
    best = np.where(candidate.max(axis=1) > 0, candidate.argmax(axis=1), labels)
    counts = np.zeros((classes, classes))
    np.add.at(counts, (best, labels), 1.0)
    return LabelNoise.of_counts(counts)


def without_noise(p: Floats, noise: LabelNoise) -> Floats:
    """Fits to noisy labels give probabilities that are mixed with noise; this takes it out again by Richardson and Lucy's
    algorithm, which keeps signs and sums."""
    q = p.copy()
    for _ in range(20):
        mixed = q @ noise.given
        ratio = np.divide(p, mixed, out=np.zeros_like(p), where=mixed > 0)
        q = q * (ratio @ noise.given.T)
    return floats(q)


def posterior(p: Floats, labels: Indices, noise: LabelNoise) -> Floats:
    """P(class | features, label): rows sum to 1."""
    r = p * noise.given[:, labels].T
    total = r.sum(axis=1, keepdims=True)
    # Where all vanish, to rounding, nothing speaks against the label.
    own = np.eye(p.shape[1])[labels]
    return floats(np.where(total > 0, r / np.where(total > 0, total, 1.0), own))


def probably_right(p: Floats, labels: Indices, noise: LabelNoise) -> Floats:
    """How probable it is that each label is right."""
    return floats(posterior(p, labels, noise)[np.arange(len(labels)), labels])


def _counts(r: Floats, labels: Indices) -> Floats:
    return floats(r.T @ np.eye(r.shape[1])[labels])


def estimate_noise(p: Floats, labels: Indices, guess: LabelNoise, steps: int) -> LabelNoise:
    """The most probable noise: some steps of expectation maximisation from a guess."""
    noise = guess
    for _ in range(steps if len(labels) else 0):
        noise = LabelNoise.of_counts(_counts(posterior(p, labels, noise), labels))
    return noise


def tempered(p: Floats, power: float) -> Floats:
    """Probabilities to a power, rows summing to 1 again: below 1 less sure of themselves, above 1 more."""
    logs = power * np.log(np.maximum(p, LEAST))
    q = np.exp(logs - logs.max(axis=1, keepdims=True))
    return floats(q / q.sum(axis=1, keepdims=True))


def _next_power(power: float, p: Floats, q: Floats, r: Floats) -> float:
    """Newton's step for the power whose probabilities q are likeliest, given the posterior r of the classes."""
    z = np.log(np.maximum(p, LEAST))
    mean = np.sum(q * z, axis=1)
    slope = float(np.sum(r * z) - mean.sum())
    curvature = float(np.sum(q * z * z) - np.sum(mean**2))
    return float(np.clip(power + slope / curvature, 0.1, 4.0)) if curvature > 0 else power


def estimate_power(p: Floats, labels: Indices, steps: int) -> float:
    """That makes the labels as they stand most probable."""
    power, r = 1.0, np.eye(p.shape[1])[labels]
    for _ in range(steps if len(labels) else 0):
        power = _next_power(power, p, tempered(p, power), r)
    return power


def estimate_noise_and_power(p: Floats, labels: Indices, guess: LabelNoise, steps: int) -> tuple[LabelNoise, float]:
    """The noise together with the power that makes the probabilities those of right labels. A fit without samples that speak
    against it is too sure of itself, and what it is too sure of would be taken for noise where classes overlap; a penalised fit
    to few samples is not sure enough, and wrong labels would be taken for classes that overlap."""
    noise, power = guess, 1.0
    for _ in range(steps if len(labels) else 0):
        q = tempered(p, power)
        r = posterior(q, labels, noise)
        noise, power = LabelNoise.of_counts(_counts(r, labels)), _next_power(power, p, q, r)
    return noise, power


def most_probably_wrong(right: Floats) -> NDArray[np.bool_]:
    """The set of samples with the least probability to be right whose expected F1 score, against the labels that are wrong, is
    largest. Empty where less than half a wrong label is expected."""
    wrong = np.zeros(len(right), dtype=bool)
    expected = float(np.sum(1 - right))
    if expected < 0.5:
        return wrong
    order = np.argsort(right, kind="stable")
    found = np.cumsum(1 - right[order])
    f1 = 2 * found / (np.arange(1, len(right) + 1) + expected)
    wrong[order[: int(np.argmax(f1)) + 1]] = True
    return wrong
