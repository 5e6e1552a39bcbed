// Before the first iteration: what the data may be, the scaled problem, and the point to start from.
#include <algorithm>
#include <cmath>
#include <utility>

#include "linear/vector.h"
#include "qp/active_set.h"
#include "qp/interior_point.h"

namespace onestep::detail {
namespace {

bool all_finite(std::size_t n, const double* x) {
  bool finite = true;
  for (std::size_t i = 0; x != nullptr && i < n; ++i) finite &= std::fabs(x[i]) <= std::numeric_limits<double>::max();
  return finite;
}

/// The first entry that is not a bound: NaN, or infinite on the side where that leaves no point at all; n if there is none.
std::size_t first_bad_bound(std::size_t n, const double* x, double forbidden) {
  std::size_t i = 0;
  while (i < n && x != nullptr && !std::isnan(x[i]) && x[i] != forbidden) ++i;
  return x == nullptr ? n : i;
}

std::size_t first_crossing(std::size_t n, const double* low, const double* high) {
  if (low == nullptr || high == nullptr) return n;
  std::size_t i = 0;
  while (i < n && low[i] <= high[i]) ++i;
  return i;
}

}  // namespace

InteriorPoint::InteriorPoint(std::size_t n, std::size_t m, std::size_t p)
    : n_(n), m_(m), p_(p), rows_(m + p), all_(m + p + n) {
  scaling_.prepare(n, rows_);
  Q_.prepare(n, n);
  C_.prepare(rows_, n);
  kkt_.prepare(n, rows_, m);
  equal_.assign(all_, 0);
  guess_.assign(all_, QpActive::none);
  exact_Qx_.assign(n, 0);
  exact_Ctl_.assign(n, 0);
  exact_value_.assign(rows_, 0);
  std::size_t used = 0;
  const auto place = [&](double*& pointer, std::size_t size) {
    pointer = arena_.data() + used;
    used += (size + 7) / 8 * 8;
  };
  for (int pass = 0; pass < 2; ++pass) {  // the first counts
    used = 0;
    for (double** v : {&q_, &Qx_, &Ctl_, &dual_residual_, &r_, &diagonal_, &direction_.Qdx, &direction_.Ctdl, &best_x_,
                       &out_x_, &proof_x_, &proof_trial_, &dual_terms_, &own_terms_})
      place(*v, n);
    for (double** v :
         {&unit_, &value_, &equality_residual_, &lambda_, &h_, &weight_, &direction_.Cdx, &direction_.dlambda, &best_lambda_,
          &out_lambda_, &primal_terms_, &multiplier_weight_, &proof_, &proof_distance_, &proof_low_, &proof_high_})
      place(*v, all_);
    for (QpSide* side : {&lower_, &upper_}) {
      for (double** v :
           {&side->has, &side->bound, &side->s, &side->z, &side->residual, &side->weight, &side->inverse, &side->target,
            &side->ds, &side->dz, &side->previous_s, &side->previous_z, &side->best_s, &side->best_z})
        place(*v, all_);
    }
    if (pass == 0) arena_.assign(used, 0.0);
  }
  x_ = value_ + rows_;
  direction_.dx = direction_.Cdx + rows_;
}

InteriorPoint::~InteriorPoint() = default;

/// Says in solution_ what is wrong with the data.
bool InteriorPoint::check_data(const QpData& data) {
  struct Part {
    const char* name;
    const double* entries;
    std::size_t size;
  };
  for (const Part& part : {Part{"Q", data.Q, n_ * n_}, Part{"q", data.q, n_}, Part{"A", data.A, m_ * n_},
                           Part{"b", data.b, m_}, Part{"G", data.G, p_ * n_}}) {
    if (all_finite(part.size, part.entries)) continue;
    solution_.culprit = part.name;
    solution_.culprit_index = static_cast<std::size_t>(
        std::find_if(part.entries, part.entries + part.size, [](double x) { return !std::isfinite(x); }) - part.entries);
    solution_.status = Status::not_finite;
    return false;
  }
  struct Bounds {
    const char *low_name, *high_name;
    const double *low, *high;
    std::size_t size;
  };
  for (const Bounds& b : {Bounds{"l", "u", data.l, data.u, p_}, Bounds{"lo", "hi", data.lo, data.hi, n_}}) {
    for (const auto& [name, entries, forbidden] :
         {std::tuple(b.low_name, b.low, infinity), std::tuple(b.high_name, b.high, -infinity)}) {
      const std::size_t bad = first_bad_bound(b.size, entries, forbidden);
      if (bad == b.size) continue;
      solution_.culprit = name;
      solution_.culprit_index = bad;
      solution_.status = std::isnan(entries[bad]) ? Status::not_finite : Status::infeasible;
      return false;
    }
    const std::size_t crossing = first_crossing(b.size, b.low, b.high);
    if (crossing == b.size) continue;
    solution_.culprit = b.low_name;
    solution_.culprit_index = crossing;
    solution_.status = Status::infeasible;
    return false;
  }
  // A row of zeros that asks for something else.
  const auto excludes_zero = [&](const double* row, double low, double high) {
    return (low > 0 || high < 0) && std::all_of(row, row + n_, [](double e) { return e == 0; });
  };
  for (std::size_t i = 0; i < rows_; ++i) {
    const std::size_t k = i < m_ ? i : i - m_;
    const auto of = [&](const double* side, double otherwise) { return side == nullptr ? otherwise : side[k]; };
    const double low = i < m_ ? of(data.b, 0) : of(data.l, -infinity), high = i < m_ ? low : of(data.u, infinity);
    if (!excludes_zero((i < m_ ? data.A : data.G) + k * n_, low, high)) continue;
    solution_.culprit = i < m_ ? "b" : low > 0 ? "l" : "u";
    solution_.culprit_index = k;
    solution_.status = Status::infeasible;
    return false;
  }
  return true;
}

/// The mean of both triangles, tile by tile because one of them is read down its columns.
void InteriorPoint::load_quadratic(const double* Q) {
  constexpr std::size_t side = 32;
  double* to = Q_.entries();
  const double* d = scaling_.d.data();
  if (Q == nullptr) std::fill_n(to, n_ * n_, 0.0);
  for (std::size_t i0 = 0; Q != nullptr && i0 < n_; i0 += side) {
    for (std::size_t j0 = 0; j0 < n_; j0 += side) {
      for (std::size_t i = i0; i < std::min(n_, i0 + side); ++i) {
        const double factor = 0.5 * scaling_.c * d[i];
        for (std::size_t j = j0; j < std::min(n_, j0 + side); ++j)
          to[i * n_ + j] = factor * d[j] * (Q[i * n_ + j] + Q[j * n_ + i]);
      }
    }
  }
  Q_.commit();
}

void InteriorPoint::load(const QpData& data) {
  scaling_.compute(data);
  const double c = scaling_.c;
  const double *d = scaling_.d.data(), *e = scaling_.e.data();
  least_d_ = n_ == 0 ? 1 : *std::min_element(d, d + n_);
  load_quadratic(data.Q);
  for (std::size_t i = 0; i < rows_; ++i) {
    const double* row = i < m_ ? data.A + i * n_ : data.G + (i - m_) * n_;
    double* to = C_.entries() + i * n_;
    for (std::size_t j = 0; j < n_; ++j) to[j] = e[i] * d[j] * row[j];
    unit_[i] = 1 / e[i];
  }
  C_.commit();
  for (std::size_t j = 0; j < n_; ++j) {
    const double q = data.q == nullptr ? 0 : data.q[j];
    q_[j] = c * d[j] * q;
    unit_[rows_ + j] = d[j];
  }
  smallest_cost_ = infinity;
  for (std::size_t j = 0; j < n_; ++j) {
    const double own = std::max(std::fabs(q_[j]), Q_.entries()[j * n_ + j]);
    if (own > 0) smallest_cost_ = std::min(smallest_cost_, own);
  }
  smallest_cost_ = smallest_cost_ < infinity ? smallest_cost_ : 1;
  constant_ = data.constant;
  load_bounds(data);
  kkt_.begin(Q_, C_);
}

void InteriorPoint::load_bounds(const QpData& data) {
  sides_ = 0;
  std::size_t at = 0;
  const auto add = [&](std::size_t count, const double* low, const double* high, double otherwise) {
    for (std::size_t k = 0; k < count; ++k, ++at) {
      const double l = low == nullptr ? -otherwise : low[k], u = high == nullptr ? otherwise : high[k];
      const bool has_lower = std::isfinite(l), has_upper = std::isfinite(u);
      equal_[at] = l == u;
      lower_.has[at] = has_lower && l != u ? 1 : 0;
      upper_.has[at] = has_upper && l != u ? 1 : 0;
      lower_.bound[at] = has_lower ? l / unit_[at] : 0;
      upper_.bound[at] = has_upper ? u / unit_[at] : 0;
      sides_ += lower_.has[at] + upper_.has[at];
    }
  };
  add(m_, data.b, data.b, 0);
  add(p_, data.l, data.u, infinity);
  add(n_, data.lo, data.hi, infinity);
  for (QpSide* side : {&lower_, &upper_}) {
    std::size_t begin = 0, end = all_;
    while (begin < end && side->has[begin] == 0) ++begin;
    while (end > begin && side->has[end - 1] == 0) --end;
    if (begin == side->begin && end == side->end) continue;
    side->begin = begin;
    side->end = end;
    for (double* one : {side->s, side->previous_s, side->best_s}) std::fill_n(one, all_, 1.0);
    for (double* none : {side->z, side->residual, side->weight, side->inverse, side->target, side->ds, side->dz,
                         side->previous_z, side->best_z})
      std::fill_n(none, all_, 0.0);
  }
}

/// Minimises the objective + ½ the squared distances of all constrained values to their bound; where there are two, or the
/// only one is far away, to the admissible value nearest to 0 or to the bound's side of it.
bool InteriorPoint::start_cold() {
  constexpr double far = 1e3;
  for (std::size_t i = 0; i < all_; ++i) {
    const bool bounded = lower_.has[i] + upper_.has[i] > 0;
    weight_[i] = is_equality(i) ? (i < rows_ ? 1 / delta_ : Kkt::fixing) : bounded ? 1 : 0;
    const double low = lower_.has[i] > 0 || is_equality(i) ? lower_.bound[i] : -infinity;
    const double high = upper_.has[i] > 0 || is_equality(i) ? upper_.bound[i] : infinity;
    const bool one_sided = lower_.has[i] != upper_.has[i];
    const double near = one_sided ? std::clamp(lower_.has[i] > 0 ? low : high, -far, far) : 0;
    const double target = std::min(std::max(near, low), high);
    h_[i] = -weight_[i] * target;
  }
  for (std::size_t j = 0; j < n_; ++j) {
    diagonal_[j] = rho_ * proximal(j) + weight_[rows_ + j];
    r_[j] = -q_[j] - h_[rows_ + j];
  }
  if (!kkt_.factor(diagonal_, weight_)) return false;
  kkt_.solve(r_, h_, direction_, 0, 1);
  for (std::size_t i = 0; i < all_; ++i) value_[i] = i >= rows_ && is_equality(i) ? lower_.bound[i] : direction_.Cdx[i];
  for (std::size_t i = 0; i < rows_; ++i) lambda_[i] = direction_.dlambda[i];
  for (std::size_t i = rows_; i < all_; ++i) lambda_[i] = weight_[i] * value_[i] + h_[i];
  shift_into_interior();
  return true;
}

/// Mehrotra's: slacks and multipliers are made positive by one shift each, then a second one balances their products. A side
/// that is far away (a bound of 1e20, say) has no part in that: its multiplier follows from its slack.
void InteriorPoint::shift_into_interior() {
  constexpr double least_shift = 1e-2, far = 1e5;
  double least_s = infinity, least_z = infinity;
  const auto each = [&](auto f) {
    for (QpSide* side : {&lower_, &upper_}) {
      for (std::size_t i = 0; i < all_; ++i)
        if (side->has[i] > 0) f(*side, i, side == &lower_ ? 1.0 : -1.0);
    }
  };
  for (QpSide* side : {&lower_, &upper_}) {
    std::fill_n(side->s, all_, 1.0);
    std::fill_n(side->z, all_, 0.0);
  }
  double size = 1;
  for (std::size_t i = 0; i < all_; ++i) size = std::max(size, std::fabs(value_[i]));
  const auto is_far = [&](double s) { return s > far * size; };
  each([&](QpSide& side, std::size_t i, double sign) {
    side.s[i] = sign * (value_[i] - side.bound[i]);
    side.z[i] = is_far(side.s[i]) ? 0 : -sign * lambda_[i];
    least_s = std::min(least_s, side.s[i]);
    least_z = std::min(least_z, side.z[i]);
  });
  const double shift_s = std::max(0.0, -1.5 * least_s), shift_z = std::max(0.0, -1.5 * least_z);
  double products = 0, sum_s = 0, sum_z = 0;
  each([&](QpSide& side, std::size_t i, double) {
    if (is_far(side.s[i])) return;
    side.s[i] += shift_s;
    side.z[i] += shift_z;
    products += side.s[i] * side.z[i];
    sum_s += side.s[i];
    sum_z += side.z[i];
  });
  const double more_s = std::max(sum_z > 0 ? 0.5 * products / sum_z : 0, least_shift);
  const double more_z = std::max(sum_s > 0 ? 0.5 * products / sum_s : 0, least_shift);
  each([&](QpSide& side, std::size_t i, double) {
    if (is_far(side.s[i] - shift_s)) {
      side.z[i] = more_s * more_z / side.s[i];
      return;
    }
    side.s[i] += more_s;
    side.z[i] += more_z;
  });
  set_multipliers();
}

/// Slacks and multipliers of the point given, none smaller than the amount by which the point fails to solve the problem.
void InteriorPoint::start_warm(const QpStart& start) {
  constexpr double least = 1e-3, most = 1;
  for (std::size_t j = 0; j < n_; ++j) x_[j] = start.x[j] / unit_[rows_ + j];
  for (std::size_t j = 0; j < n_; ++j)
    if (is_equality(rows_ + j)) x_[j] = lower_.bound[rows_ + j];
  std::fill_n(lambda_, all_, 0.0);
  const auto multipliers = [&](std::span<const double> from, std::size_t at) {
    for (std::size_t k = 0; k < from.size(); ++k) lambda_[at + k] = from[k] * scaling_.c * unit_[at + k];
  };
  multipliers(start.y, 0);
  multipliers(start.z, m_);
  multipliers(start.bound_multipliers, rows_);
  for (QpSide* side : {&lower_, &upper_}) {
    std::fill_n(side->s, all_, 1.0);
    std::fill_n(side->z, all_, 0.0);
  }
  evaluate();
  double off = 0;
  for (std::size_t j = 0; j < n_; ++j) off = std::max(off, std::fabs(dual_residual_[j]));
  for (std::size_t i = 0; i < all_; ++i) {
    const double excess = std::max(value_[i] - upper_.bound[i], lower_.bound[i] - value_[i]);
    if (is_equality(i)) off = std::max(off, std::fabs(excess));
    off = std::max({off, upper_.has[i] * (value_[i] - upper_.bound[i]), lower_.has[i] * (lower_.bound[i] - value_[i])});
  }
  const double floor = std::clamp(off, least, most);
  for (QpSide* side : {&lower_, &upper_}) {
    const double sign = side == &lower_ ? 1 : -1;
    for (std::size_t i = 0; i < all_; ++i) {
      if (side->has[i] == 0) continue;
      side->s[i] = std::max(sign * (value_[i] - side->bound[i]), floor);
      side->z[i] = std::max(-sign * lambda_[i], floor);
    }
  }
  set_multipliers();
}

}  // namespace onestep::detail
