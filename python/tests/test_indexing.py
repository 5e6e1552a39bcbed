"""Indexing an expression chooses what indexing an array does."""

from __future__ import annotations

import numpy as np
import pytest

import onestep

M = np.arange(12.0).reshape(3, 4)
V = np.array([0.4, -0.7, 1.3, 2.0])

OF_VECTOR = [
    0, -1, np.int64(2), slice(1, None), slice(None, -1), slice(None), slice(None, None, -1), slice(None, None, 2), slice(2, 2),
    slice(3, 0, -1), slice(-100, 100), [0, 2], [2, -1, 2], np.array([1, 3]), np.array([True, False, True, False]), [], None,
    Ellipsis, (slice(1, 3), None), (None, 2), (Ellipsis, 1), slice(3, 1),
]  # fmt: skip
OF_MATRIX = [
    0, -1, (1, 2), (-1, -2), slice(1, None), (slice(None), 0), (slice(None), -1), (slice(None), slice(1, 3)), (1, slice(None)),
    (slice(None), [0, 2]), ([2, 0], slice(None)), [1, 1], (slice(None), np.array([True, False, False, True])), Ellipsis,
    (Ellipsis, 1), (0, Ellipsis), (slice(None, None, -1), slice(None, None, 2)), ([0, 2], 1), (1, [0, 3]), (slice(0, 1), 1),
]  # fmt: skip


@pytest.mark.parametrize("index", OF_VECTOR, ids=repr)
def test_of_a_vector(index):
    compare(V, index)


@pytest.mark.parametrize("index", OF_MATRIX, ids=repr)
def test_of_a_matrix(index):
    compare(M, index)


def compare(a, index):
    expected = a[np.asarray(index, dtype=int) if index == [] else index] if isinstance(index, list) else a[index]
    traced = onestep.traced(lambda e: e[index] * 1.0, a.shape)
    value = traced(a)
    assert value.shape == expected.shape
    np.testing.assert_array_equal(value, expected)
    c = 1.0 + np.arange(expected.size).reshape(expected.shape)
    wanted = np.zeros(a.shape)
    np.add.at(wanted, np.asarray(index, dtype=int) if isinstance(index, list) else index, c)
    gradient = onestep.traced(lambda e: onestep.grad(np.sum(e[index] * c) + 0.0 * np.sum(e), e), a.shape)(a)
    np.testing.assert_array_equal(gradient, wanted)


@pytest.mark.parametrize("index", [4, -5, (0, 0), [0, 4], [True, False], (Ellipsis, Ellipsis)], ids=repr)
def test_what_is_not_there_is_an_index_error(index):
    with pytest.raises(IndexError):
        onestep.traced(lambda e: e[index], (4,))


@pytest.mark.parametrize("index", [1.5, "a", ([0], [1]), [0.5], [[0, 1]]], ids=repr)
def test_what_is_no_index_is_a_type_error(index):
    with pytest.raises(TypeError):
        onestep.traced(lambda e: e[index], (4, 4))


def test_an_expression_is_no_index():
    with pytest.raises(onestep.TracingError, match="np.where"):
        onestep.traced(lambda e: e[e[0]], (4,))
    with pytest.raises(onestep.TracingError):
        onestep.traced(lambda e: e[: e[0]], (4,))
    with pytest.raises(onestep.TracingError, match="NumPy array"):
        onestep.traced(lambda e: V[e[0]], (4,))


def test_entries_can_be_unpacked():
    def rotation(x):
        a, b = x
        return np.stack([np.cos(a) * b, np.sin(a) * b])

    np.testing.assert_allclose(onestep.traced(rotation, (2,))(np.array([0.3, 2.0])), [np.cos(0.3) * 2, np.sin(0.3) * 2])
    assert onestep.traced(lambda x: len(x) * x[0], (7,))(np.ones(7)) == 7
