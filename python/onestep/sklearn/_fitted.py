"""What an estimator keeps of its fit."""

from __future__ import annotations

import dataclasses

from onestep.sklearn._problem import Floats, Indices, Model, Samples, Scaling


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A fit as it was made: what standard errors and influences are computed from."""

    model: Model
    samples: Samples | None  # those with a positive weight, scaled; None where they were not kept
    used: Indices  # their places among the samples that fit was given
    given: int  # how many these were
    strength: Floats
    x: Floats  # of the scaled features
    scaling: Scaling
    target_mean: float = 0.0
    target_scale: float = 1.0
