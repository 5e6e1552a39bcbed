// Products and Gram matrices in each of the three forms, cut by shape alone.
#include "qp/row_matrix.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/blas.h"
#include "backend/cpu/dense.h"
#include "backend/cpu/tile_kernels.h"
#include "parallel/pool.h"

namespace onestep::detail {
namespace {

// Up to small_entries both orders fit the first-level cache, and our own kernels beat the call of BLAS.
constexpr std::size_t small_entries = 2048;
// A row of indices and values costs about eight times a dense one for each entry.
constexpr std::size_t dense_per_sparse = 8;
constexpr std::size_t gram_rows = 192;
constexpr std::size_t threads_from_entries = std::size_t{1} << 16;
constexpr std::size_t pieces = 8;

parallel::Cut cut_product(std::size_t extent, std::size_t entries) {
  return parallel::cut_into(extent, entries < threads_from_entries ? 1 : pieces);
}

}  // namespace

void RowMatrix::prepare(std::size_t rows, std::size_t columns) {
  rows_ = rows;
  columns_ = columns;
  const std::size_t entries = rows * columns;
  dense_.assign(entries, 0.0);
  if (entries <= small_entries) {
    form_ = Form::small;
    transposed_.assign(entries, 0.0);
  } else {
    form_ = Form::dense;
    row_begin_.assign(rows + 1, 0);
    column_.assign(entries / dense_per_sparse, 0);
    value_.assign(entries / dense_per_sparse, 0.0);
  }
}

void RowMatrix::commit() {
  if (form_ == Form::small) {
    for (std::size_t i = 0; i < rows_; ++i) {
      for (std::size_t j = 0; j < columns_; ++j) transposed_[j * rows_ + i] = dense_[i * columns_ + j];
    }
    return;
  }
  form_ = Form::dense;
  std::size_t count = 0;
  for (std::size_t i = 0; i < rows_; ++i) {
    row_begin_[i] = static_cast<std::uint32_t>(count);
    const double* row = dense_.data() + i * columns_;
    for (std::size_t j = 0; j < columns_; ++j) {
      if (row[j] == 0) continue;
      if (count == value_.size()) return;
      column_[count] = static_cast<std::uint32_t>(j);
      value_[count++] = row[j];
    }
  }
  row_begin_[rows_] = static_cast<std::uint32_t>(count);
  form_ = Form::sparse;
}

void RowMatrix::multiply(const double* x, double* out) const {
  switch (form_) {
    case Form::small: cpu::tile_kernels().matvec(transposed_.data(), rows_, rows_, columns_, x, out); break;
    case Form::dense: {
      const parallel::Cut cut = cut_product(rows_, dense_.size());
      parallel::parallel_for(cut.count, [&](std::size_t p) {
        const std::size_t i = cut.begin(p);
        cpu::blas::dgemv_(cpu::blas::Trans::yes, columns_, cut.length(p), 1.0, dense_.data() + i * columns_, columns_, x, 1,
                          0.0, out + i, 1);
      });
      break;
    }
    case Form::sparse:
      for (std::size_t i = 0; i < rows_; ++i) {
        double sum = 0;
        for (std::uint32_t k = row_begin_[i]; k < row_begin_[i + 1]; ++k) sum += value_[k] * x[column_[k]];
        out[i] = sum;
      }
      break;
  }
}

void RowMatrix::add_transposed(const double* v, double* out) const {
  switch (form_) {
    case Form::small: cpu::tile_kernels().tmatvec(transposed_.data(), rows_, rows_, columns_, v, out); break;
    case Form::dense: {
      const parallel::Cut cut = cut_product(columns_, dense_.size());
      parallel::parallel_for(cut.count, [&](std::size_t p) {
        const std::size_t j = cut.begin(p);
        cpu::blas::dgemv_(cpu::blas::Trans::no, cut.length(p), rows_, 1.0, dense_.data() + j, columns_, v, 1, 1.0, out + j,
                          1);
      });
      break;
    }
    case Form::sparse:
      for (std::size_t i = 0; i < rows_; ++i) {
        const double vi = v[i];
        if (vi == 0) continue;
        for (std::uint32_t k = row_begin_[i]; k < row_begin_[i + 1]; ++k) out[column_[k]] += value_[k] * vi;
      }
      break;
  }
}

template <class F> void RowMatrix::each_entry(std::size_t row, F f) const {
  if (form_ == Form::sparse) {
    for (std::uint32_t k = row_begin_[row]; k < row_begin_[row + 1]; ++k) f(column_[k], value_[k]);
  } else {
    for (std::size_t j = 0; j < columns_; ++j) f(j, dense_[row * columns_ + j]);
  }
}

void RowMatrix::multiply(const double* x, long double* out) const {
  for (std::size_t i = 0; i < rows_; ++i) {
    long double sum = 0;
    each_entry(i, [&](std::size_t j, double entry) { sum += static_cast<long double>(entry) * x[j]; });
    out[i] = sum;
  }
}

void RowMatrix::add_transposed(const double* v, long double* out) const {
  for (std::size_t i = 0; i < rows_; ++i)
    each_entry(i, [&](std::size_t j, double entry) { out[j] += static_cast<long double>(entry) * v[i]; });
}

bool RowMatrix::has_small_gram() const { return form_ == Form::small && columns_ <= cpu::max_small_n; }

std::size_t RowMatrix::gram_scratch() const { return has_small_gram() ? 0 : cpu::panels_size(gram_rows, columns_); }

void RowMatrix::add_gram(std::size_t first, std::size_t last, const double* weight, double* h, double* scratch) const {
  const std::size_t n = columns_;
  if (has_small_gram()) {
    cpu::tile_kernels().gram(transposed_.data() + first, rows_, last - first, n, weight + first, h);
    return;
  }
  if (form_ == Form::sparse) {
    for (std::size_t i = first; i < last; ++i) {
      const double w = weight[i];
      if (w == 0) continue;
      for (std::uint32_t k = row_begin_[i]; k < row_begin_[i + 1]; ++k) {
        const double scaled = w * value_[k];
        double* row = h + column_[k] * n;
        for (std::uint32_t other = row_begin_[i]; other <= k; ++other) row[column_[other]] += scaled * value_[other];
      }
    }
    return;
  }
  for (std::size_t i = first; i < last; i += gram_rows) {
    const std::size_t count = std::min(gram_rows, last - i);
    cpu::gram(count, n, dense_.data() + i * n, weight + i, h, scratch);
  }
}

void RowMatrix::copy_lower(double* h) const {
  const std::size_t n = columns_;
  for (std::size_t i = 0; i < n; ++i) {
    if (form_ == Form::sparse) {
      std::fill_n(h + i * n, i + 1, 0.0);
      for (std::uint32_t k = row_begin_[i]; k < row_begin_[i + 1] && column_[k] <= i; ++k) h[i * n + column_[k]] = value_[k];
    } else {
      std::copy_n(dense_.data() + i * n, i + 1, h + i * n);
    }
  }
}

}  // namespace onestep::detail
