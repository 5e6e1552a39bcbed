"""The model files of the command (`onestep fit --save`), as Python reads and writes them."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onestep import _core
from onestep._data import ColumnEncoding, Dataset, Path, path_of, read_dataset
from onestep._errors import FileError, MisuseError

Floats = NDArray[np.float64]

FORMAT, FORMAT_VERSION = "onestep model", 1
LARGEST_FILE = 1 << 30
LOSSES = ("logistic", "ridge", "softmax")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LinearModel:
    """A linear model with an intercept, as `onestep fit --save` and `onestep tune --save` write it and `onestep predict` reads it.

    `coefficients` and `intercept` are of the scaled features where there is a scaling; `unscaled()` has those of the features
    as they were.

    >>> model = onestep.read_model("model.json")
    >>> labels = model.predict(model.read("new.csv"))
    >>> onestep.LinearModel("ridge", np.array([0.5, -1.0]), 2.0).write("mine.json")
    """

    loss: str
    """"logistic", "softmax" or "ridge"."""
    coefficients: Floats
    """(n,), or (n, K) for the K classes of softmax."""
    intercept: Any
    """A number, or (K,) for softmax."""
    labels: Floats = dataclasses.field(default_factory=lambda: np.empty(0))
    """Of the classes, ascending; empty for ridge."""
    label_names: list[str] = dataclasses.field(default_factory=list)
    """Of the classes, where the training file named them."""
    mean: Floats | None = None
    """Of each feature, which is subtracted before it is divided by `scale`."""
    scale: Floats | None = None
    """Of each feature."""
    features: list[str] = dataclasses.field(default_factory=list)
    """Their names."""
    places: list[int] = dataclasses.field(default_factory=list)
    """Where the features stand among those that the columns give, from 0; empty: they are all of them."""
    l2: float = 0.0
    """The penalty; of several their geometric mean."""
    hyperparameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What was tuned: `hyper`, `names` and `values`."""
    samples: int = 1
    """How many it was learned from."""
    encoding: list[ColumnEncoding] = dataclasses.field(default_factory=list)
    """How the columns of a CSV file became features."""
    header: bool = False
    """Whether that file had names."""
    target: str = ""
    """Its target."""
    target_column: int = 0
    """Its position, from 1; 0: none."""
    first_index: int = 1
    """Of a file in LIBSVM's format."""
    missing: str = "refuse"
    """How missing values were treated: "refuse", "drop" or "impute"."""
    missing_texts: list[str] = dataclasses.field(default_factory=list)
    """What stands for them beside an empty field; empty: what read_csv takes for it."""
    file: str = ""
    """What it was learned from."""
    version: str = _core.__version__
    """Of onestep, that wrote it."""
    command: str = "Python"
    """That wrote it."""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise MisuseError(f"[LinearModel] {problem}")
        if not self.features:
            object.__setattr__(self, "features", [str(j + 1) for j in range(len(self.coefficients))])

    def _problem(self) -> str:
        if self.loss not in LOSSES:
            return f"there is no loss {self.loss!r}: it is one of {', '.join(LOSSES)}"
        for name in ("coefficients", "intercept", "labels", "mean", "scale"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.float64))
                if not np.all(np.isfinite(getattr(self, name))):
                    return f"{name} has NaN or infinity"
        classes, n = len(self.labels), len(self.coefficients)
        if self.coefficients.shape != ((n, classes) if self.loss == "softmax" else (n,)) or n == 0:
            return f"coefficients have shape {self.coefficients.shape}: (features,), or (features, classes) for softmax, is needed"
        if self.intercept.shape != ((classes,) if self.loss == "softmax" else ()):
            return "there is one intercept, or one for each class of softmax"
        if self.loss == "ridge" and (classes or self.label_names):
            return "a ridge model has no classes"
        if self.loss != "ridge" and (classes < 2 or np.any(np.diff(self.labels) <= 0)):
            return "labels are at least two and ascend"
        if self.loss == "logistic" and classes != 2:
            return "a logistic model has two labels"
        if self.label_names and (len(self.label_names) != classes or len(set(self.label_names)) != classes):
            return "there is a name for each label, and no two are the same"
        if self.features and len(self.features) != n:
            return f"{len(self.features)} names are given for {n} features"
        if (self.mean is None) != (self.scale is None):
            return "mean and scale belong together"
        if self.mean is not None and self.scale is not None:
            if self.mean.shape != (n,) or self.scale.shape != (n,) or not np.all(self.scale > 0):
                return "mean and scale have an entry for each feature, those of scale positive"
        if not (math.isfinite(self.l2) and self.l2 >= 0):
            return "l2 is not negative"
        if self.samples < 1:
            return "it is learned from one sample or more"
        if self.missing not in ("refuse", "drop", "impute"):
            return f"there is no way to treat missing values called {self.missing!r}"
        return self._problem_of_places(n)

    def _problem_of_places(self, n: int) -> str:
        all_names = [name for column in self.encoding for name in column.feature_names()]
        if not self.places:
            return "its columns do not give its features" if self.encoding and len(all_names) != n else ""
        ascending = all(a < b for a, b in zip(self.places, self.places[1:])) and self.places[0] >= 0
        if len(self.places) != n or not ascending or (self.encoding and self.places[-1] >= len(all_names)):
            return "its places are not those of its features"
        return ""

    def __repr__(self) -> str:
        classes = f", {len(self.labels)} classes" if len(self.labels) else ""
        return f"<LinearModel: {self.loss}, {len(self.coefficients)} features{classes}, learned from {self.samples} samples>"

    def read(self, path: Path) -> Dataset:
        """Reads samples in the columns that the model knows. They need not have the target.

        >>> data = model.read("new.csv")
        """
        target = str(self.target_column) if not self.header and self.target_column > 0 else ""
        data = read_dataset(
            path,
            target=target,
            target_name=self.target,
            label_names=self.label_names,
            encoding=self.encoding,
            first_index=0 if self.first_index == 0 else None,
            missing=self.missing,  # type: ignore[arg-type]
            missing_texts=self.missing_texts,
            target_optional=True,
        )
        name = path_of(path)
        if self.header and data.encoding and not data.names:
            raise MisuseError(f"{name} has no header; the model knows its features by their names")
        if bool(self.encoding) != bool(data.encoding):
            raise MisuseError(f"{name} is {'' if data.encoding else 'not '}CSV, what the model was learned from is another format")
        if data.first_index < self.first_index:
            raise MisuseError(f"{name} has an index 0, what the model was learned from had none")
        if not data.open_ended and not self.places and data.A.shape[1] != len(self.coefficients):
            raise MisuseError(f"{name} has {data.A.shape[1]} features, the model {len(self.coefficients)}")
        return data

    def margins(self, samples: Dataset | ArrayLike) -> Floats:
        """What is linear in the coefficients, for each sample: a number, or one for each class of softmax.

        >>> model.margins(A)
        """
        A = self._matrix(samples)
        if self.mean is not None and self.scale is not None:
            A = (A - self.mean) / self.scale
        return np.asarray(A @ self.coefficients + self.intercept, dtype=np.float64)

    def probabilities(self, samples: Dataset | ArrayLike) -> Floats:
        """(N, K): of the classes, in the order of `labels`.

        >>> model.probabilities(A)[:, 1]
        """
        if self.loss == "ridge":
            raise MisuseError("[LinearModel.probabilities] a ridge model predicts a quantity: use predict")
        z = self.margins(samples)
        if self.loss == "logistic":
            z = np.column_stack([np.zeros(len(z)), z])
        p = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True), dtype=np.float64)

    def predict(self, samples: Dataset | ArrayLike) -> NDArray[Any]:
        """The quantity, or the likeliest label of each sample: its name where labels have names.

        >>> model.predict(model.read("new.csv"))
        """
        z = self.margins(samples)
        if self.loss == "ridge":
            return z
        likeliest = (z > 0).astype(np.intp) if self.loss == "logistic" else z.argmax(axis=1)
        labels = np.array(self.label_names) if self.label_names else self.labels
        return np.asarray(labels[likeliest])

    def unscaled(self) -> tuple[Floats, Any]:
        """Coefficients and intercept of the features as they were.

        >>> coefficients, intercept = model.unscaled()
        """
        if self.mean is None or self.scale is None:
            return self.coefficients, self.intercept
        raw = (self.coefficients.T / self.scale).T
        return raw, self.intercept - self.mean @ raw

    def write(self, path: Path) -> None:
        """Writes it as `onestep fit --save` does, for `onestep predict` or read_model. A file that is there is replaced whole.

        >>> model.write("model.json")
        """
        text = json.dumps(_json_of(self), indent=1, allow_nan=False) + "\n"
        to = path_of(path)
        try:
            with open(to + ".part", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(to + ".part", to)
        except OSError as error:
            raise FileError(f"[LinearModel.write] {to}: {error.strerror}", to, problem=str(error.strerror)) from None

    def _matrix(self, samples: Dataset | ArrayLike) -> Floats:
        n = len(self.coefficients)
        is_dataset = isinstance(samples, Dataset)
        A = samples.A if isinstance(samples, Dataset) else np.asarray(samples, dtype=np.float64)
        if A.ndim != 2:
            raise MisuseError(f"[LinearModel] samples are the rows of a matrix, not an array of shape {A.shape}")
        if is_dataset and self.places:
            missing = self.places[-1] + 1 - A.shape[1]
            if missing > 0:
                A = np.pad(A, ((0, 0), (0, missing)))
            return np.asarray(A[:, self.places], dtype=np.float64)
        if isinstance(samples, Dataset) and samples.open_ended:  # a format without zeros may lack the last features
            A = np.pad(A, ((0, 0), (0, max(0, n - A.shape[1]))))[:, :n]
        if A.shape[1] != n:
            raise MisuseError(f"[LinearModel] samples have {A.shape[1]} features, the model {n}")
        return np.asarray(A, dtype=np.float64)


def _json_of(model: LinearModel) -> dict[str, Any]:
    made: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": model.version,
        "command": model.command,
        "file": model.file,
        "samples": int(model.samples),
        "loss": model.loss,
        "l2": float(model.l2),
    }
    if model.hyperparameters:
        made["hyperparameters"] = model.hyperparameters
    if model.loss != "ridge":
        made["classes"] = {"labels": model.labels.tolist()}
        if model.label_names:
            made["classes"]["names"] = list(model.label_names)
    made["input"] = {
        "header": model.header,
        "target": model.target,
        "target_column": model.target_column,
        "first_index": model.first_index,
        "missing": model.missing,
        "columns": [_json_of_column(column) for column in model.encoding],
    }
    if model.missing_texts:
        made["input"]["missing_texts"] = list(model.missing_texts)
    made["features"] = list(model.features)
    if model.places:
        made["places"] = [int(place) for place in model.places]
    scaled = model.mean is not None and model.scale is not None
    made["scaling"] = {"mean": model.mean.tolist(), "scale": model.scale.tolist()} if scaled else None  # type: ignore[union-attr]
    made["coefficients"] = model.coefficients.tolist()
    made["intercept"] = model.intercept.tolist()
    return made


def _json_of_column(column: ColumnEncoding) -> dict[str, Any]:
    made: dict[str, Any] = {"name": column.name}
    if column.levels:
        made["reference"] = column.levels[0]
        made["levels"] = list(column.levels)
        made["most_frequent"] = column.levels[int(column.fill)]
    else:
        made["mean"] = float(column.fill)
    made["missing_indicator"] = column.indicator
    return made


def _column_of(parts: dict[str, Any], header: bool) -> ColumnEncoding:
    levels = list(parts.get("levels", []))
    fill = float(levels.index(parts["most_frequent"])) if levels else float(parts["mean"])
    if levels and parts["reference"] != levels[0]:
        raise ValueError("the reference of a column is not its first level")
    return ColumnEncoding(parts["name"], levels, fill, bool(parts["missing_indicator"]), not header)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice in it")
    return members


def _model_of(parts: dict[str, Any]) -> LinearModel:
    source = parts["input"]
    scaling = parts["scaling"] or {"mean": None, "scale": None}
    classes = parts["classes"] if parts["loss"] != "ridge" else {"labels": []}
    if parts["loss"] == "ridge" and "classes" in parts:
        raise ValueError("a ridge model has no classes")
    return LinearModel(
        loss=parts["loss"],
        coefficients=np.array(parts["coefficients"], dtype=np.float64),
        intercept=np.array(parts["intercept"], dtype=np.float64),
        labels=np.array(classes["labels"], dtype=np.float64),
        label_names=list(classes.get("names", [])),
        mean=scaling["mean"],
        scale=scaling["scale"],
        features=list(parts["features"]),
        places=list(parts.get("places", [])),
        l2=parts["l2"],
        hyperparameters=dict(parts.get("hyperparameters", {})),
        samples=parts["samples"],
        encoding=[_column_of(column, source["header"]) for column in source["columns"]],
        header=source["header"],
        target=source["target"],
        target_column=source["target_column"],
        first_index=source["first_index"],
        missing=source["missing"],
        missing_texts=list(source.get("missing_texts", [])),
        file=parts["file"],
        version=parts["version"],
        command=parts["command"],
    )


def read_model(path: Path) -> LinearModel:
    """Reads a model that `onestep fit --save`, `onestep tune --save` or LinearModel.write wrote. A FileError says what is wrong.

    >>> model = onestep.read_model("model.json")
    """
    name = path_of(path)

    def wrong(problem: str) -> FileError:
        return FileError(f"[read_model] {name} {problem}", name, problem=problem)

    text = _core.text_of_file(name, LARGEST_FILE)
    try:
        parts = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError:
        parts = None
    except ValueError as error:
        raise wrong(f"is damaged: {error}") from None
    if not isinstance(parts, dict) or parts.get("format") != FORMAT:
        raise wrong("is not a model that onestep fit --save or onestep tune --save wrote")
    if parts.get("format_version") != FORMAT_VERSION:
        raise wrong(f"has format {parts.get('format_version')} of models; this version of onestep reads format {FORMAT_VERSION}")
    try:
        return _model_of(parts)
    except (MisuseError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise wrong(f"is damaged: {reason}") from None
