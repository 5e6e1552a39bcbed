// A matrix of a quadratic program, kept the way its products are fastest: both orders when small, compressed rows when
// mostly zeros, else dense. Row-major throughout. Results have the same bits for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onestep::detail {

class RowMatrix {
 public:
  /// Room for a matrix of this shape; nothing below allocates.
  void prepare(std::size_t rows, std::size_t columns);

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_; }
  /// The entries row by row, for the caller to fill; commit() afterwards makes them known.
  double* entries() { return dense_.data(); }
  const double* entries() const { return dense_.data(); }
  void commit();
  /// Whether most entries are zeros, so that sums over rows are cheap.
  bool is_sparse() const { return form_ == Form::sparse; }

  /// out = M x
  void multiply(const double* x, double* out) const;
  /// out += Mᵀ v
  void add_transposed(const double* v, double* out) const;
  /// The same with sums of higher precision, and slower.
  void multiply(const double* x, long double* out) const;
  void add_transposed(const double* v, long double* out) const;
  /// Lower triangle of h (n x n, n = columns) += Σ weight_i M_iᵀ M_i over rows [first, last).
  /// `scratch` has gram_scratch() doubles.
  void add_gram(std::size_t first, std::size_t last, const double* weight, double* h, double* scratch) const;
  std::size_t gram_scratch() const;
  /// Lower triangle of h = that of M, which is square; the rest of h is left alone.
  void copy_lower(double* h) const;

 private:
  bool has_small_gram() const;
  template <class F> void each_entry(std::size_t row, F f) const;

  enum class Form : std::uint8_t { small, dense, sparse };

  std::size_t rows_ = 0, columns_ = 0;
  Form form_ = Form::dense;
  std::vector<double> dense_, transposed_;
  // Compressed rows: entries [row_begin_[i], row_begin_[i + 1]) belong to row i.
  std::vector<std::uint32_t> row_begin_, column_;
  std::vector<double> value_;
};

}  // namespace onestep::detail
