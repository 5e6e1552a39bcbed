"""Samples and programs from files: what the readers return, and the readers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from onestep import _core

Path: TypeAlias = "str | os.PathLike[str]"
Column: TypeAlias = "str | int"
Missing: TypeAlias = Literal["refuse", "drop", "impute"]

default_memory_limit: int = _core.default_memory_limit


@dataclasses.dataclass(frozen=True)
class ColumnEncoding:
    """How a column of a CSV file became features, so that the columns of other samples become the same ones.

    A column of numbers is a feature. A category has a feature for each level but the first, which is the reference. Where
    training samples lacked values, a further feature is 1 for samples that lack it.

    >>> onestep.ColumnEncoding("colour", levels=["blue", "red"])  # one feature: colour=red
    """

    name: str
    """Of the column; its position from 1 where the file has no names."""
    levels: list[str] = dataclasses.field(default_factory=list)
    """Of a category, the reference first; empty for numbers."""
    fill: float = 0.0
    """What stands for a missing value: the mean, or the place of the most frequent level."""
    indicator: bool = False
    """Whether a feature says that the value is missing."""
    unnamed: bool = False
    """Whether the name is a position: such a column is not looked for in a header."""

    def feature_names(self) -> list[str]:
        """The names of the features that the column became: `age`, `colour=red`, `age is missing`."""
        names = [f"{self.name}={level}" for level in self.levels[1:]] or [self.name]
        return [*names, f"{self.name} is missing"] if self.indicator else names


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """N samples with n features each: the rows of A and the entries of y belong together.

    >>> data = onestep.read_libsvm("a9a")
    >>> A, y = data.A, onestep.signs_of(data.y)
    """

    A: NDArray[np.float64]
    """(N, n), the features."""
    y: NDArray[np.float64]
    """(N,), the labels or the target; empty where it was optional and is not there."""
    names: list[str] = dataclasses.field(default_factory=list)
    """Of the features, where the file has them."""
    target_name: str = ""
    """Of y, where the file has it."""
    label_names: list[str] = dataclasses.field(default_factory=list)
    """Of the classes 0, 1, ... that y then has, where the file names them."""
    encoding: list[ColumnEncoding] = dataclasses.field(default_factory=list)
    """How the columns of a CSV file became features."""
    columns: list[int] = dataclasses.field(default_factory=list)
    """Of the features in a CSV file, from 1."""
    target_column: int = 0
    """Of a CSV file, from 1; 0: none."""
    rows: list[int] = dataclasses.field(default_factory=list)
    """Which sample of the file each is, from 1; empty: all of them are here."""
    in_file: int = 0
    """Samples in a CSV file, those left out included; 0 for other formats."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """What the reader guessed, and what it made of missing values and texts."""
    left_out: list[str] = dataclasses.field(default_factory=list)
    """Names of a CSV file's columns that are neither features nor the target."""
    codes: list[str] = dataclasses.field(default_factory=list)
    """Features of numbers that may be codes: with leading zeros, or with more digits than a double keeps."""
    unknown_labels: list[str] = dataclasses.field(default_factory=list)
    """Texts in the target that are none of the classes asked for, where the target is optional; y is NaN there."""
    open_ended: bool = False
    """Whether the format leaves zeros out, so that other samples of the same kind may have more features, or fewer."""
    first_index: int = 1
    """Which index the first feature has in LIBSVM's format: 0 or 1."""

    def __repr__(self) -> str:
        samples, features = self.A.shape
        classes = f", {len(self.label_names)} classes" if self.label_names else ""
        notes = f", {len(self.notes)} notes" if self.notes else ""
        return f"<Dataset: {samples} samples with {features} features{classes}{notes}>"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class QpsFile:
    """A quadratic program as a QPS or MPS file has it.

    >>> file = onestep.read_qps("QAFIRO.QPS.gz")
    >>> s = onestep.solve_qp(**file.problem)
    >>> dict(zip(file.columns, s.x))
    """

    name: str
    """As the NAME line has it."""
    problem: dict[str, Any]
    """Q, q, A, b, G, l, u, lo, hi and constant, as solve_qp takes them; of a file that maximises with opposite signs."""
    maximise: bool
    """Whether the file maximises: solve_qp then finds minus its objective."""
    columns: list[str]
    """Names of the variables."""
    equalities: list[str]
    """Names of the rows of A."""
    inequalities: list[str]
    """Names of the rows of G."""

    def __repr__(self) -> str:
        sizes = f"{len(self.columns)} variables, {len(self.equalities)} equalities, {len(self.inequalities)} inequalities"
        return f"<QpsFile {self.name}: {sizes}>"


def dataset_of(parts: dict[str, Any]) -> Dataset:
    return Dataset(**{**parts, "encoding": [ColumnEncoding(**column) for column in parts["encoding"]]})


def path_of(path: Path) -> str:
    return os.fspath(path)


def _chosen(name: str, value: Any, among: Sequence[Any]) -> Any:
    if value not in among:
        from onestep._errors import MisuseError

        raise MisuseError(f"{name} must be one of {', '.join(map(repr, among))}, not {value!r}")
    return value


def _strings(name: str, values: Sequence[Column]) -> list[str]:
    if isinstance(values, str):
        from onestep._errors import MisuseError

        raise MisuseError(f"{name} must be a list of columns: [{values!r}]")
    return [str(v) for v in values]


def _csv_options(like: Dataset | None, **given: Any) -> dict[str, Any]:
    """As the module takes them. What `like` knows of the columns is used where nothing else is said."""
    if like is not None:
        given["encoding"] = given["encoding"] or like.encoding
        given["target_name"] = given["target_name"] or like.target_name
        given["label_names"] = given["label_names"] or like.label_names
        if like.encoding and like.encoding[0].unnamed and not given["target"] and like.target_column > 0:
            given["target"] = like.target_column
    separator = given["separator"]
    if separator is not None and (len(separator) != 1 or not separator.isascii()):
        _chosen("separator", separator, [",", ";", "\t", " ", "|"])
    _chosen("decimal", given["decimal"], [None, ".", ","])
    _chosen("missing", given["missing"], ["refuse", "drop", "impute"])
    _chosen("header", given["header"], [None, True, False])
    return {
        **given,
        "target": str(given["target"]),
        "drop": _strings("drop", given["drop"]),
        "names": _strings("names", given["names"]),
        "missing_texts": _strings("missing_texts", given["missing_texts"]),
        "category": _strings("category", given["category"]),
        "label_names": _strings("label_names", given["label_names"]),
        "separator": separator or "",
        "decimal": given["decimal"] or "",
        "encoding": [dataclasses.asdict(column) for column in given["encoding"]],
    }


def read_libsvm(
    path: Path, features: int | None = None, *, first_index: int | None = None, memory_limit: int = default_memory_limit
) -> Dataset:
    """Reads the text format of LIBSVM and SVMlight: a line is a sample, its label, then `index:value`.

    The file may be compressed by gzip or bzip2; "-" is standard input. An index 0 anywhere means that indices start at 0,
    unless `first_index` says it. `features` is how many there have to be: a test set may lack the last ones. What is wrong in
    the file is a FileError with line and field.

    >>> train = onestep.read_libsvm("a1a")
    >>> test = onestep.read_libsvm("a1a.t", train.A.shape[1], first_index=train.first_index)
    """
    return dataset_of(_core.libsvm_parts(path_of(path), features, first_index, memory_limit))


def read_csv(
    path: Path,
    *,
    target: Column = "",
    drop: Sequence[Column] = (),
    like: Dataset | None = None,
    header: bool | None = None,
    separator: str | None = None,
    decimal: Literal[".", ","] | None = None,
    missing: Missing = "refuse",
    missing_texts: Sequence[str] = (),
    categories: bool = False,
    category: Sequence[Column] = (),
    names: Sequence[str] = (),
    target_name: str = "",
    label_names: Sequence[str] = (),
    encoding: Sequence[ColumnEncoding] = (),
    target_optional: bool = False,
    memory_limit: int = default_memory_limit,
) -> Dataset:
    """Reads a table of numbers as text: a line is a sample, one column is the target, the others are the features.

    Columns are given by name or position, from 1 or from -1 at the end. Without `target` the last column is y. Texts in the
    target name classes: y counts them from 0, in the order of `label_names`. `header`, `separator` and `decimal` are guessed
    where they are not given, and `notes` of the result says what was guessed. `missing="drop"` leaves samples with missing
    values out, "impute" takes means; `missing_texts` says what stands for them beside an empty field (without it NA, None, ? and
    the like). `categories=True` makes columns of texts features, `category` those of numbers that are none. `like` is a Dataset whose columns these are to become the same features as; `target_optional` is for prediction.

    >>> train = onestep.read_csv("train.csv", target="price", drop=["id"], categories=True)
    >>> test = onestep.read_csv("test.csv", like=train)
    """
    given = {key: value for key, value in locals().items() if key not in ("path", "like")}
    return dataset_of(_core.csv_parts(path_of(path), _csv_options(like, **given)))


def read_dataset(
    path: Path,
    *,
    like: Dataset | None = None,
    features: int | None = None,
    first_index: int | None = None,
    labels: Path = "",
    target: Column = "",
    drop: Sequence[Column] = (),
    header: bool | None = None,
    separator: str | None = None,
    decimal: Literal[".", ","] | None = None,
    missing: Missing = "refuse",
    missing_texts: Sequence[str] = (),
    categories: bool = False,
    category: Sequence[Column] = (),
    names: Sequence[str] = (),
    target_name: str = "",
    label_names: Sequence[str] = (),
    encoding: Sequence[ColumnEncoding] = (),
    target_optional: bool = False,
    memory_limit: int = default_memory_limit,
) -> Dataset:
    """Reads any of the formats: IDX is told by its first bytes, CSV by its name or its first line, all else is LIBSVM's.

    The options are those of read_libsvm, read_csv and read_idx (`labels`: by default the images' name with `labels` for
    `images`), each for the format it concerns.

    >>> train = onestep.read_dataset("train.csv")
    >>> test = onestep.read_dataset("test.csv", like=train)
    """
    given = {key: value for key, value in locals().items() if key not in ("path", "like", "features", "first_index", "labels")}
    if like is not None and like.open_ended and features is None:
        features = like.A.shape[1]
    if like is not None and like.open_ended and first_index is None:
        first_index = like.first_index
    options = _csv_options(like, **given)
    options.update(features=features, first_index=first_index, labels=path_of(labels))
    return dataset_of(_core.dataset_parts(path_of(path), options))


@overload
def read_idx(images: Path, labels: None = None, *, memory_limit: int = ...) -> NDArray[np.float64]: ...
@overload
def read_idx(images: Path, labels: Path, *, memory_limit: int = ...) -> Dataset: ...
def read_idx(
    images: Path, labels: Path | None = None, *, memory_limit: int = default_memory_limit
) -> NDArray[np.float64] | Dataset:
    """Reads the binary format of MNIST. One file gives an array, (N,) or (N, the product of the other sizes); images and
    their labels give a Dataset.

    >>> digits = onestep.read_idx("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    """
    if labels is None:
        return _core.idx_array(path_of(images), memory_limit)
    return dataset_of(_core.idx_parts(path_of(images), path_of(labels), memory_limit))


def read_qps(path: Path, *, memory_limit: int = default_memory_limit) -> QpsFile:
    """Reads a quadratic or linear program in a QPS or MPS file, plain or compressed by gzip or bzip2.

    Integer variables and quadratic constraints are refused. The matrices are dense.

    >>> file = onestep.read_qps("QAFIRO.QPS.gz")
    >>> print(onestep.solve_qp(**file.problem).objective)
    """
    return QpsFile(**_core.qps_parts(path_of(path), memory_limit))
