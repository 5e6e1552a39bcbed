// Finds the factors: equilibration, the blocks that rows tie together, and the sizes of their solutions.
#include "qp/scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "linear/vector.h"

namespace onestep::detail {
namespace {

// Far from overflow: of factors of variables even where they are squared, of rows and of the objective as they are.
constexpr double least_factor = 0x1p-500, most_factor = 0x1p500, least_of_row = 0x1p-1000, most_of_row = 0x1p1000;

bool is_usable(double size) { return size >= least_factor && size <= most_factor; }
bool is_usable_of_row(double size) { return size >= least_of_row && size <= most_of_row; }

double power_of_two(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(1.0, fraction < 0.70710678118654752 ? exponent - 1 : exponent);
}

/// max_j |a_j| x_j, and y_j = max(y_j, factor |a_j|).
double row_pass(std::size_t n, const double* a, const double* x, double factor, double* y) {
  double largest = 0;
  for (std::size_t j = 0; j < n; ++j) {
    const double size = std::fabs(a[j]);
    largest = std::max(largest, size * x[j]);
    y[j] = std::max(y[j], factor * size);
  }
  return largest;
}

double row_largest(std::size_t n, const double* a, const double* x) {
  double largest = 0;
  for (std::size_t j = 0; j < n; ++j) largest = std::max(largest, std::fabs(a[j]) * x[j]);
  return largest;
}

}  // namespace

void QpScaling::prepare(std::size_t n, std::size_t rows) {
  d.assign(n, 1.0);
  e.assign(rows, 1.0);
  column_norm_.assign(n, 0.0);
  quadratic_norm_.assign(n, 0.0);
  alone_.assign(n, 0);
  in_rows_.assign(n, 0);
  row_norm_.assign(rows, 0.0);
  block_.assign(n, 0);
  row_block_.assign(rows, 0);
  sizes_.assign(n, {});
}

void QpScaling::compute(const QpData& data) {
  std::fill(d.begin(), d.end(), 1.0);
  std::fill(e.begin(), e.end(), 1.0);
  c = 1;
  in_range = true;
  equilibrate(data);
  for (double& x : d) x = power_of_two(x);
  for (double& x : e) x = power_of_two(x);
  find_blocks(data);
  find_sizes(data);
  for (std::size_t j = 0; j < data.n; ++j) d[j] *= sizes_[block_[j]].unit;
  for (std::size_t i = 0; i < data.m + data.p; ++i)
    if (row_block_[i] < data.n) e[i] /= sizes_[row_block_[i]].unit;
  scale_what_no_row_touches(data);
  scale_what_no_matrix_touches(data);
  double largest = 0;
  for (std::size_t j = 0; j < data.n; ++j) {
    if (data.q != nullptr) largest = std::max(largest, d[j] * std::fabs(data.q[j]));
    if (data.Q != nullptr) largest = std::max(largest, d[j] * row_largest(data.n, data.Q + j * data.n, d.data()));
  }
  if (is_usable_of_row(largest)) c = power_of_two(1 / largest);
  const auto has_entries = [](const double* x, std::size_t size) {
    return x != nullptr && std::any_of(x, x + size, [](double entry) { return entry != 0; });
  };
  if (!is_usable_of_row(largest) && (has_entries(data.q, data.n) || has_entries(data.Q, data.n * data.n))) in_range = false;
}

/// Ruiz's sweeps over the rows of A and G; of columns that are in none of them over Q, whose largest entry counts as 1.
void QpScaling::equilibrate(const QpData& data) {
  constexpr int most_sweeps = 20;
  constexpr double enough = 4;
  const std::size_t n = data.n;
  // Rows first: a factor of a row is the row's own, and shall not be shared out to its variables.
  for (std::size_t i = 0; i < data.m + data.p; ++i) {
    const double largest = row_largest(n, i < data.m ? data.A + i * n : data.G + (i - data.m) * n, d.data());
    if (is_usable_of_row(largest)) e[i] = 1 / largest;
    if (largest > 0 && !is_usable_of_row(largest)) in_range = false;
  }
  for (int sweep = 0; sweep < most_sweeps; ++sweep) {
    std::fill(column_norm_.begin(), column_norm_.end(), 0.0);
    for (std::size_t i = 0; i < data.m + data.p; ++i) {
      const double* row = i < data.m ? data.A + i * n : data.G + (i - data.m) * n;
      row_norm_[i] = e[i] * row_pass(n, row, d.data(), e[i], column_norm_.data());
    }
    for (std::size_t j = 0; j < n; ++j) {
      in_rows_[j] = column_norm_[j] > 0 ? 1 : 0;
      column_norm_[j] *= d[j];
    }
    if (data.Q != nullptr) {
      double largest = 0;
      for (std::size_t j = 0; j < n; ++j) {
        quadratic_norm_[j] = d[j] * row_largest(n, data.Q + j * n, d.data());
        largest = std::max(largest, quadratic_norm_[j]);
      }
      for (std::size_t j = 0; is_usable_of_row(largest) && j < n; ++j)
        if (in_rows_[j] == 0) column_norm_[j] = quadratic_norm_[j] / largest;
    }
    double off = 1;
    const auto update = [&](double norm, double& factor, double least, double most) {
      if (!is_usable(norm)) return;
      off = std::max({off, norm, 1 / norm});
      factor = std::clamp(factor / std::sqrt(norm), least, most);
    };
    for (std::size_t j = 0; j < n; ++j) update(column_norm_[j], d[j], least_factor, most_factor);
    for (std::size_t i = 0; i < data.m + data.p; ++i) update(row_norm_[i], e[i], least_of_row, most_of_row);
    if (off < enough) break;
  }
  for (std::size_t j = 0; j < n; ++j) alone_[j] = column_norm_[j] == 0 ? 1 : 0;
}

/// Variables that rows tie to each other, directly or by others, get one number; those in no row together another.
void QpScaling::find_blocks(const QpData& data) {
  const std::size_t n = data.n;
  std::iota(block_.begin(), block_.end(), std::size_t{0});
  const auto first_of = [this](std::size_t j) {
    while (block_[j] != j) j = block_[j] = block_[block_[j]];
    return j;
  };
  for (std::size_t i = 0; i < data.m + data.p; ++i) {
    const double* row = i < data.m ? data.A + i * n : data.G + (i - data.m) * n;
    std::size_t first = n;
    for (std::size_t j = 0; j < n; ++j) {
      if (row[j] == 0) continue;
      const std::size_t other = first_of(j);
      if (first < n) block_[std::max(first, other)] = std::min(first, other);
      first = std::min(first, other);
    }
    row_block_[i] = first;
  }
  std::size_t in_none = n;
  for (std::size_t j = 0; j < n; ++j) {
    if (in_rows_[j] == 0) in_none = std::min(in_none, j);
    block_[j] = in_rows_[j] == 0 ? in_none : first_of(j);
  }
  for (std::size_t i = 0; i < data.m + data.p; ++i)
    if (row_block_[i] < n) row_block_[i] = block_[row_block_[i]];
}

/// How large the entries of a solution can be expected to be in each block, in the units of d and e: how far from 0 the
/// constraints keep x, or how far the objective drives x from 0 until its minimum, a bound or a row stops it. A guess: a bad
/// one costs iterations.
void QpScaling::find_sizes(const QpData& data) {
  const std::size_t n = data.n;
  std::fill(sizes_.begin(), sizes_.end(), Size{});
  const auto see_bounds = [](Size& s, double low, double high) {
    for (const double bound : {low, high})
      if (std::isfinite(bound) && bound != 0) s.smallest = std::min(s.smallest, std::fabs(bound));
    s.outside = std::max({s.outside, std::isfinite(low) ? low : 0, std::isfinite(high) ? -high : 0});
  };
  const auto of = [](const double* bounds, std::size_t i, double otherwise) {
    return bounds == nullptr ? otherwise : bounds[i];
  };
  const auto counts = [&](std::size_t j) { return alone_[j] == 0; };
  for (std::size_t i = 0; i < data.m + data.p; ++i) {
    if (!(row_norm_[i] > 0)) continue;
    const double low = i < data.m ? of(data.b, i, 0) : of(data.l, i - data.m, -infinity);
    const double high = i < data.m ? low : of(data.u, i - data.m, infinity);
    see_bounds(sizes_[row_block_[i]], e[i] * low, e[i] * high);
  }
  for (std::size_t j = 0; j < n; ++j) {
    if (!counts(j)) continue;
    Size& s = sizes_[block_[j]];
    see_bounds(s, of(data.lo, j, -infinity) / d[j], of(data.hi, j, infinity) / d[j]);
    s.linear = std::max(s.linear, d[j] * std::fabs(of(data.q, j, 0)));
    if (data.Q != nullptr) s.quadratic = std::max(s.quadratic, d[j] * row_largest(n, data.Q + j * n, d.data()));
  }
  // The point the objective drives x to, each variable for itself, and what rows leave of the way. Without any curvature a
  // way that no bound of its own ends is a direction alone, which has a length only once a row stops it.
  std::vector<double>& target = column_norm_;
  for (std::size_t j = 0; j < n; ++j) {
    target[j] = 0;
    if (!counts(j)) continue;
    Size& s = sizes_[block_[j]];
    const double curvature = data.Q == nullptr ? 0 : d[j] * d[j] * data.Q[j * n + j];
    const double slope = d[j] * of(data.q, j, 0);
    const double low = of(data.lo, j, -infinity) / d[j], high = of(data.hi, j, infinity) / d[j];
    double t = slope == 0 ? 0 : -slope / (curvature > 0 ? curvature : s.quadratic > 0 ? s.quadratic : s.linear);
    const bool ends = t > 0 ? std::isfinite(high) : std::isfinite(low);
    if (curvature <= 0 && t > 0 && ends && high > 0) t = high;
    if (curvature <= 0 && t < 0 && ends && low < 0) t = low;
    target[j] = std::clamp(t, std::min(low, 0.0), std::max(high, 0.0));
    s.way = std::max(s.way, std::fabs(target[j]));
    if (s.quadratic > 0 || ends) s.known_way = std::max(s.known_way, std::fabs(target[j]));
  }
  for (std::size_t i = 0; i < data.p; ++i) {
    if (!(row_norm_[data.m + i] > 0)) continue;
    Size& s = sizes_[row_block_[data.m + i]];
    if (s.quadratic > 0) s.part = std::min(s.part, 1.0);
    const double* row = data.G + i * n;
    double value = 0;
    for (std::size_t j = 0; j < n; ++j) value += row[j] * d[j] * target[j];
    value *= e[data.m + i];
    const double bound = e[data.m + i] * (value > 0 ? of(data.u, i, infinity) : of(data.l, i, -infinity));
    if (std::isfinite(bound) && bound * value > 0) s.part = std::min(s.part, bound / value);
  }
  double overall = 0;
  for (Size& s : sizes_) {
    const double size = std::max(s.outside, s.way > 0 && s.part < infinity ? s.part * s.way : s.known_way);
    if (size > 0 && !is_usable(size)) in_range = false;
    s.unit = is_usable(size) ? size : is_usable(s.smallest) && s.smallest < infinity ? s.smallest : 0;
    overall = std::max(overall, s.unit);
  }
  // Of a block about which nothing is known: the unit of the others.
  for (Size& s : sizes_) s.unit = power_of_two(s.unit > 0 ? s.unit : overall > 0 ? overall : 1);
}

/// Each has the size it would have without the others, where that is known.
void QpScaling::scale_what_no_row_touches(const QpData& data) {
  if (data.Q == nullptr) return;
  for (std::size_t j = 0; j < data.n; ++j) {
    const double curvature = data.Q[j * data.n + j], slope = data.q == nullptr ? 0 : data.q[j];
    if (in_rows_[j] != 0 || alone_[j] != 0 || !(curvature > 0)) continue;
    const double low = data.lo == nullptr ? -infinity : data.lo[j], high = data.hi == nullptr ? infinity : data.hi[j];
    const double size = std::fabs(low <= high ? std::clamp(-slope / curvature, low, high) : 0);
    if (is_usable(size)) d[j] = power_of_two(size);
    if (size > most_factor) in_range = false;
  }
}

/// Variables that occur in bounds and q alone, and rows of zeros.
void QpScaling::scale_what_no_matrix_touches(const QpData& data) {
  const auto choose = [](double& factor, double size) {
    if (is_usable(size)) factor = std::clamp(power_of_two(size), least_factor, most_factor);
  };
  const auto smaller = [](const double* low, const double* high, std::size_t i) {
    double size = infinity;
    for (const double* bounds : {low, high})
      if (bounds != nullptr && std::isfinite(bounds[i]) && bounds[i] != 0) size = std::min(size, std::fabs(bounds[i]));
    return size < infinity ? size : 0;
  };
  double linear = 0;
  for (std::size_t j = 0; j < data.n; ++j)
    if (data.q != nullptr && alone_[j] == 0) linear = std::max(linear, d[j] * std::fabs(data.q[j]));
  for (std::size_t j = 0; j < data.n; ++j) {
    if (alone_[j] == 0) continue;
    d[j] = 1;
    if (data.q != nullptr && data.q[j] != 0) choose(d[j], (linear > 0 ? linear : 1) / std::fabs(data.q[j]));
    choose(d[j], smaller(data.lo, data.hi, j));
  }
  for (std::size_t i = 0; i < data.m + data.p; ++i) {
    if (row_norm_[i] != 0) continue;
    e[i] = 1;
    const double size = i < data.m ? smaller(data.b, data.b, i) : smaller(data.l, data.u, i - data.m);
    if (size > 0) choose(e[i], 1 / size);
  }
}

}  // namespace onestep::detail
