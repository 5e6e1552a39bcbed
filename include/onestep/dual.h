// Dual numbers: a value with its derivatives along K directions. Code that is a template of its number type is
// differentiated by running it, with whatever branches and loops it has. dual_step makes a step of such code that any solver
// takes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "onestep/array.h"
#include "onestep/solver.h"

namespace onestep {

/// A number and its derivatives along K directions at once: what is done to the value is done once, however many directions
/// there are. Comparisons look at the value. Numbers convert to it, with derivative zero.
///
///     Dual<2> x(3.0), y(4.0);
///     x.d[0] = 1, y.d[1] = 1;
///     double dx = sqrt(x * x + y * y).d[0];  // 0.6
template <std::size_t K> struct Dual {
  double value = 0;
  std::array<double, K> d{};

  constexpr Dual() = default;
  template <class Number>
  requires std::is_arithmetic_v<Number>
  constexpr Dual(Number number) : value(static_cast<double>(number)) {}

  friend Dual operator+(Dual a, const Dual& b) { return a += b; }
  friend Dual operator+(Dual a, double b) { return a += b; }
  friend Dual operator+(double a, Dual b) { return b += a; }
  friend Dual operator-(Dual a, const Dual& b) { return a -= b; }
  friend Dual operator-(Dual a, double b) { return a -= b; }
  friend Dual operator-(double a, const Dual& b) { return -b + a; }
  friend Dual operator*(Dual a, const Dual& b) { return a *= b; }
  friend Dual operator*(Dual a, double b) { return a *= b; }
  friend Dual operator*(double a, Dual b) { return b *= a; }
  friend Dual operator/(Dual a, const Dual& b) { return a /= b; }
  friend Dual operator/(Dual a, double b) { return a /= b; }
  friend Dual operator/(double a, const Dual& b) { return Dual(a) /= b; }
  friend Dual operator+(const Dual& a) { return a; }
  friend Dual operator-(Dual a) { return a *= -1.0; }

  Dual& operator+=(const Dual& b) {
    value += b.value;
    for (std::size_t k = 0; k < K; ++k) d[k] += b.d[k];
    return *this;
  }
  Dual& operator-=(const Dual& b) {
    value -= b.value;
    for (std::size_t k = 0; k < K; ++k) d[k] -= b.d[k];
    return *this;
  }
  Dual& operator*=(const Dual& b) {
    for (std::size_t k = 0; k < K; ++k) d[k] = d[k] * b.value + value * b.d[k];
    value *= b.value;
    return *this;
  }
  Dual& operator/=(const Dual& b) {
    value /= b.value;
    for (std::size_t k = 0; k < K; ++k) d[k] = (d[k] - value * b.d[k]) / b.value;
    return *this;
  }
  Dual& operator+=(double b) { return value += b, *this; }
  Dual& operator-=(double b) { return value -= b, *this; }
  Dual& operator*=(double b) {
    value *= b;
    for (double& e : d) e *= b;
    return *this;
  }
  Dual& operator/=(double b) {
    value /= b;
    for (double& e : d) e /= b;
    return *this;
  }

  friend bool operator==(const Dual& a, const Dual& b) { return a.value == b.value; }
  friend std::partial_ordering operator<=>(const Dual& a, const Dual& b) { return a.value <=> b.value; }
};

namespace detail {

template <class T> inline constexpr bool is_dual = false;
template <std::size_t K> inline constexpr bool is_dual<Dual<K>> = true;

// The dual number that an operation on these gives: at least one of them is one, the others are numbers or the same.
template <class... T> struct DualOf {};
template <std::size_t K, class... Rest>
requires((std::is_arithmetic_v<Rest> || std::is_same_v<Rest, Dual<K>>)&&...) struct DualOf<Dual<K>, Rest...> {
  using type = Dual<K>;
};
template <class Number, class... Rest>
requires std::is_arithmetic_v<Number>
struct DualOf<Number, Rest...> : DualOf<Rest...> {
};
template <class... T> using dual_of = typename DualOf<T...>::type;

template <std::size_t K> double value_of(const Dual<K>& x) { return x.value; }
inline double value_of(double x) { return x; }

// y.d += partial · x.d. A partial derivative that is a comparison selects; one that is infinite or NaN meets only the
// directions in which x moves, so that a parameter held fixed at a kink does no harm.
template <std::size_t K> void add_term(Dual<K>& y, double partial, const Dual<K>& x) {
  if (std::isfinite(partial)) {
    for (std::size_t k = 0; k < K; ++k) y.d[k] += partial * x.d[k];
  } else {
    for (std::size_t k = 0; k < K; ++k)
      if (x.d[k] != 0) y.d[k] += partial * x.d[k];
  }
}
template <std::size_t K> void add_term(Dual<K>& y, bool selected, const Dual<K>& x) {
  if (selected)
    for (std::size_t k = 0; k < K; ++k) y.d[k] += x.d[k];
}

// The rows of operations.def on plain numbers: the value of each, and the names its derivative columns use.
namespace pointwise {
inline constexpr double one = 1.0, zero = 0.0;
inline constexpr bool nothing = false;
#define ONESTEP_UNARY(name, flops, meaning, result, da) \
  inline double name(double a) { return result; }
#include "onestep/operations.def"
inline double pow(double a, double b) { return std::pow(a, b); }
inline double where(bool condition, double a, double b) { return condition ? a : b; }
inline bool less(double a, double b) { return a < b; }
inline bool less_equal(double a, double b) { return a <= b; }
inline bool greater(double a, double b) { return a > b; }
inline bool greater_equal(double a, double b) { return a >= b; }
inline bool equal(double a, double b) { return a == b; }
inline bool not_equal(double a, double b) { return a != b; }

#define ONESTEP_UNARY(name, flops, meaning, result, da)        \
  template <class A> dual_of<A> name##_row(const A& x) {       \
    [[maybe_unused]] const double a = value_of(x), y = result; \
    A out(y);                                                  \
    add_term(out, da, x);                                      \
    return out;                                                \
  }
#define ONESTEP_BINARY(name, flops, meaning, result, da, db)                     \
  template <class A, class B> dual_of<A, B> name##_row(const A& x, const B& z) { \
    [[maybe_unused]] const double a = value_of(x), b = value_of(z), y = result;  \
    dual_of<A, B> out(y);                                                        \
    if constexpr (is_dual<A>) add_term(out, da, x);                              \
    if constexpr (is_dual<B>) add_term(out, db, z);                              \
    return out;                                                                  \
  }
#define ONESTEP_TERNARY(name, flops, meaning, result, da, db, dc)                                        \
  template <class A, class B, class C> dual_of<A, B, C> name##_row(const A& x, const B& z, const C& w) { \
    [[maybe_unused]] const double a = value_of(x), b = value_of(z), c = value_of(w), y = result;         \
    dual_of<A, B, C> out(y);                                                                             \
    if constexpr (is_dual<A>) add_term(out, da, x);                                                      \
    if constexpr (is_dual<B>) add_term(out, db, z);                                                      \
    if constexpr (is_dual<C>) add_term(out, dc, w);                                                      \
    return out;                                                                                          \
  }
#include "onestep/operations.def"

// A function that is not in the table, from its value and its derivative.
template <std::size_t K> Dual<K> chain(double y, double slope, const Dual<K>& x) {
  Dual<K> out(y);
  add_term(out, slope, x);
  return out;
}
}  // namespace pointwise

}  // namespace detail

// The elementwise operations of the table in operations.def, by the same names and with the same choices where a derivative
// is not unique: exp, expm1, log, log1p, sqrt, square, abs, sign, tanh, sigmoid, softplus, erf, sin, cos, atan,
// stop_gradient, pow, maximum, minimum, less … not_equal, where. Arguments beside a dual number may be plain numbers. Call
// them without std:: in front.
//
//     T z = softplus(-y * x), p = maximum(x, 0.0), q = pow(x, 3);
#define ONESTEP_UNARY(name, flops, meaning, ...) \
  template <std::size_t K> Dual<K> name(const Dual<K>& a) { return detail::pointwise::name##_row(a); }
#define ONESTEP_BINARY(name, flops, meaning, ...)                                  \
  template <class A, class B> detail::dual_of<A, B> name(const A& a, const B& b) { \
    return detail::pointwise::name##_row(a, b);                                    \
  }
#define ONESTEP_TERNARY(name, flops, meaning, ...)                                                         \
  template <class A, class B, class C> detail::dual_of<A, B, C> name(const A& a, const B& b, const C& c) { \
    return detail::pointwise::name##_row(a, b, c);                                                         \
  }
#include "onestep/operations.def"

/// C++'s names for what the table calls otherwise.
///
///     T largest = max(x, y), size = fabs(x);
template <class A, class B> detail::dual_of<A, B> max(const A& a, const B& b) { return maximum(a, b); }
template <class A, class B> detail::dual_of<A, B> min(const A& a, const B& b) { return minimum(a, b); }
template <std::size_t K> Dual<K> fabs(const Dual<K>& a) { return abs(a); }
template <std::size_t K> bool isfinite(const Dual<K>& a) { return std::isfinite(a.value); }
template <std::size_t K> bool isnan(const Dual<K>& a) { return std::isnan(a.value); }

/// Functions of <cmath> beyond the table.
///
///     T angle = asin(x), length = hypot(x, y);
template <std::size_t K> Dual<K> tan(const Dual<K>& a) {
  const double y = std::tan(a.value);
  return detail::pointwise::chain(y, 1 + y * y, a);
}
template <std::size_t K> Dual<K> asin(const Dual<K>& a) {
  return detail::pointwise::chain(std::asin(a.value), 1 / std::sqrt((1 - a.value) * (1 + a.value)), a);
}
template <std::size_t K> Dual<K> acos(const Dual<K>& a) {
  return detail::pointwise::chain(std::acos(a.value), -1 / std::sqrt((1 - a.value) * (1 + a.value)), a);
}
template <std::size_t K> Dual<K> sinh(const Dual<K>& a) {
  return detail::pointwise::chain(std::sinh(a.value), std::cosh(a.value), a);
}
template <std::size_t K> Dual<K> cosh(const Dual<K>& a) {
  return detail::pointwise::chain(std::cosh(a.value), std::sinh(a.value), a);
}
template <std::size_t K> Dual<K> cbrt(const Dual<K>& a) {
  const double y = std::cbrt(a.value);
  return detail::pointwise::chain(y, 1 / (3 * y * y), a);
}
/// The derivative of hypot at (0, 0) is 0, as that of abs.
template <class A, class B> detail::dual_of<A, B> hypot(const A& a, const B& b) {
  const double u = detail::value_of(a), v = detail::value_of(b), length = std::hypot(u, v);
  detail::dual_of<A, B> out(length);
  if constexpr (detail::is_dual<A>) detail::add_term(out, length > 0 ? u / length : 0.0, a);
  if constexpr (detail::is_dual<B>) detail::add_term(out, length > 0 ? v / length : 0.0, b);
  return out;
}
template <class A, class B> detail::dual_of<A, B> atan2(const A& a, const B& b) {
  const double u = detail::value_of(a), v = detail::value_of(b), square = u * u + v * v;
  detail::dual_of<A, B> out(std::atan2(u, v));
  if constexpr (detail::is_dual<A>) detail::add_term(out, v / square, a);
  if constexpr (detail::is_dual<B>) detail::add_term(out, -u / square, b);
  return out;
}

/// A parameter as a step of dual numbers sees it: read like an Array, with entries of another type.
///
///     T first = theta[0](0), entry = theta[1](2, 3), number = theta[2].item();
template <class T> class ArrayOf {
 public:
  ArrayOf(const Shape& shape, std::span<const T> entries) : shape_(shape), entries_(entries) {}
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return shape_.size(); }
  /// All entries, row by row.
  std::span<const T> values() const { return entries_; }
  /// The value of a number, or of an array with one entry. Throws Error otherwise.
  const T& item() const {
    if (size() != 1) throw Error("[ArrayOf] item of an array of shape " + to_string(shape_));
    return entries_[0];
  }
  /// An entry; throws Error outside the shape.
  const T& operator()(std::int64_t i) const {
    if (shape_.rank() != 1 || i < 0 || i >= shape_[0])
      throw Error("[ArrayOf] (" + std::to_string(i) + ") is outside " + to_string(shape_));
    return entries_[static_cast<std::size_t>(i)];
  }
  const T& operator()(std::int64_t row, std::int64_t column) const {
    if (shape_.rank() != 2 || row < 0 || row >= shape_[0] || column < 0 || column >= shape_[1])
      throw Error("[ArrayOf] (" + std::to_string(row) + ", " + std::to_string(column) + ") is outside " + to_string(shape_));
    return entries_[static_cast<std::size_t>(row * shape_[1] + column)];
  }

 private:
  Shape shape_;
  std::span<const T> entries_;
};

namespace detail {

// Entries of all arrays, row by row, one array behind the other.
inline void append_entries(std::span<const Array> arrays, std::vector<double>& to) {
  for (const Array& a : arrays)
    for (std::int64_t i = 0; i < a.shape()[0]; ++i)
      for (std::int64_t j = 0; j < a.shape()[1]; ++j) to.push_back(a.data()[i * a.row_stride() + j * a.column_stride()]);
}

// What one call of the functor reads and writes. The arguments are one vector, the state and then the parameters.
template <std::size_t D> struct DualPass {
  std::vector<Dual<D>> arguments, next;
  std::vector<ArrayOf<Dual<D>>> theta;

  void load(std::span<const double> point, std::size_t n, std::span<const Array> parameters) {
    arguments.assign(point.begin(), point.end());
    next.resize(n);
    theta.clear();
    std::span<const Dual<D>> rest = std::span<const Dual<D>>(arguments).subspan(n);
    for (const Array& a : parameters) {
      theta.emplace_back(a.shape(), rest.first(static_cast<std::size_t>(a.size())));
      rest = rest.subspan(static_cast<std::size_t>(a.size()));
    }
  }
  template <class F> void run(const F& f) {
    f(std::span<const Dual<D>>(arguments).first(next.size()), std::span<const ArrayOf<Dual<D>>>(theta),
      std::span<Dual<D>>(next));
  }
};

// The callbacks of dual_step.
template <std::size_t K, class F> class DualStep {
 public:
  explicit DualStep(F f) : f_(std::move(f)) {}

  void apply(std::span<const double> x, std::span<const Array> theta, std::span<double> next) {
    const Lease work(*this);
    work->move_to(x, theta, true);
    work->value.load(work->point, x.size(), theta);
    work->value.run(f_);
    std::ranges::transform(work->value.next, next.begin(), [](const Dual<0>& e) { return e.value; });
  }
  void jvp(std::span<const double> x, std::span<const Array> theta, std::span<const double> dx,
           std::span<const Array> dtheta, std::span<double> out) {
    const Lease work(*this);
    work->move_to(x, theta, false);
    std::ranges::fill(out, 0.0);
    if (!dx.empty()) add_product(*work, work->by_x, theta, dx, out);
    if (dtheta.empty()) return;
    work->direction.clear();
    append_entries(dtheta, work->direction);
    add_product(*work, work->by_theta, theta, work->direction, out);
  }
  void vjp(std::span<const double> x, std::span<const Array> theta, std::span<const double> c, std::span<double> x_bar,
           std::span<const std::span<double>> theta_bar) {
    const Lease work(*this);
    work->move_to(x, theta, false);
    if (!x_bar.empty()) transposed_product(*work, work->by_x, theta, c, x_bar);
    if (theta_bar.empty()) return;
    work->direction.resize(work->by_theta.width);
    transposed_product(*work, work->by_theta, theta, c, work->direction);
    auto from = work->direction.begin();
    for (const std::span<double> part : theta_bar) {
      std::copy_n(from, part.size(), part.begin());
      from += static_cast<std::ptrdiff_t>(part.size());
    }
  }

 private:
  static constexpr std::size_t largest_kept = std::size_t{1} << 22;  // entries of a Jacobian: 32 MB

  // The derivative by the arguments [first, first + width), kept as long as the point stays.
  struct Jacobian {
    std::size_t first = 0, width = 0, products = 0;
    bool formed = false;
    std::vector<double> rows;
  };
  struct Work {
    std::vector<double> point, moved_to, direction;
    DualPass<0> value;
    DualPass<1> single;
    DualPass<K> block;
    Jacobian by_x, by_theta;

    // After `anew` nothing is kept, even at the same point: what the functor refers to may have changed between solves.
    void move_to(std::span<const double> x, std::span<const Array> theta, bool anew) {
      moved_to.assign(x.begin(), x.end());
      append_entries(theta, moved_to);
      if (!anew && moved_to == point) return;
      point.swap(moved_to);
      by_x.first = 0;
      by_x.width = by_theta.first = x.size();
      by_theta.width = point.size() - x.size();
      by_x.formed = by_theta.formed = false;
      by_x.products = by_theta.products = 0;
    }
  };

  // Memory for one call at a time, kept for the next: calls may come from several threads, and from inside each other.
  class Lease {
   public:
    explicit Lease(DualStep& owner) : owner_(owner) {
      const std::lock_guard lock(owner_.mutex_);
      if (owner_.free_.empty()) {
        work_ = std::make_unique<Work>();
      } else {
        work_ = std::move(owner_.free_.back());
        owner_.free_.pop_back();
      }
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() {
      const std::lock_guard lock(owner_.mutex_);
      owner_.free_.push_back(std::move(work_));
    }
    Work* operator->() const { return work_.get(); }
    Work& operator*() const { return *work_; }

   private:
    DualStep& owner_;
    std::unique_ptr<Work> work_;
  };

  // Runs over the directions of `j` in blocks of K: visit(column, k) where block.next[i].d[k] is the entry (i, column).
  template <class Visit> void sweep(Work& work, const Jacobian& j, std::span<const Array> theta, const Visit& visit) {
    work.block.load(work.point, work.by_x.width, theta);
    for (std::size_t begin = 0; begin < j.width; begin += K) {
      const std::size_t count = std::min(K, j.width - begin);
      for (std::size_t k = 0; k < count; ++k) work.block.arguments[j.first + begin + k].d[k] = 1;
      work.block.run(f_);
      for (std::size_t k = 0; k < count; ++k) visit(begin + k, k);
      for (std::size_t k = 0; k < count; ++k) work.block.arguments[j.first + begin + k].d[k] = 0;
    }
  }
  void form(Work& work, Jacobian& j, std::span<const Array> theta) {
    const std::size_t n = work.by_x.width;
    j.rows.resize(n * j.width);
    sweep(work, j, theta, [&](std::size_t column, std::size_t k) {
      for (std::size_t i = 0; i < n; ++i) j.rows[i * j.width + column] = work.block.next[i].d[k];
    });
    j.formed = true;
  }
  static bool can_be_kept(const Work& work, const Jacobian& j) { return work.by_x.width * j.width <= largest_kept; }

  void add_product(Work& work, Jacobian& j, std::span<const Array> theta, std::span<const double> v, std::span<double> out) {
    // Once there have been as many products as there are blocks, more of them are likely.
    if (!j.formed && j.products++ >= (j.width + K - 1) / K && can_be_kept(work, j)) form(work, j, theta);
    if (j.formed) {
      for (std::size_t i = 0; i < out.size(); ++i)
        for (std::size_t k = 0; k < j.width; ++k) out[i] += j.rows[i * j.width + k] * v[k];
      return;
    }
    work.single.load(work.point, work.by_x.width, theta);
    for (std::size_t k = 0; k < j.width; ++k) work.single.arguments[j.first + k].d[0] = v[k];
    work.single.run(f_);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += work.single.next[i].d[0];
  }
  void transposed_product(Work& work, Jacobian& j, std::span<const Array> theta, std::span<const double> c,
                          std::span<double> out) {
    std::ranges::fill(out, 0.0);
    if (!j.formed && can_be_kept(work, j)) form(work, j, theta);
    if (j.formed) {
      for (std::size_t i = 0; i < c.size(); ++i)
        for (std::size_t k = 0; k < j.width; ++k) out[k] += j.rows[i * j.width + k] * c[i];
      return;
    }
    sweep(work, j, theta, [&](std::size_t column, std::size_t k) {
      for (std::size_t i = 0; i < c.size(); ++i) out[column] += work.block.next[i].d[k] * c[i];
    });
  }

  F f_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Work>> free_;
};

}  // namespace detail

/// A step from code that is a template of its number type: f(x, θ, next) writes F(x, θ) to `next`. It is called with
/// T = Dual<0> for the value, and with Dual<1> and Dual<K> for derivatives; branches and loops are taken as the values say,
/// so the derivative is that of the branch taken. f must depend on its arguments alone, and is called from several threads
/// if the solver is used from several.
///
/// A jvp costs one evaluation with Dual<1>. There is no reverse mode: a vjp forms ∂F/∂x in ⌈n/K⌉ evaluations with Dual<K>,
/// or ∂F/∂θ in ⌈m/K⌉, for a state of n and parameters of m entries; at the same point it is then kept, up to 4 million
/// entries, and further products cost no evaluation. For thousands of parameters, take jvp alone or another AD library's
/// reverse mode.
///
///     Solver root = fixed_point(dual_step([]<class T>(std::span<const T> x, std::span<const ArrayOf<T>> theta,
///                                                     std::span<T> next) {
///       next[0] = x[0] > 0 ? 0.5 * (x[0] + theta[0](0) / x[0]) : T(1);
///     }));
template <std::size_t K = 8, class F> ForeignStep dual_step(F f) {
  static_assert(K > 0, "dual_step needs at least one direction in a block");
  const auto step = std::make_shared<detail::DualStep<K, F>>(std::move(f));
  return {
      .apply = [step](auto x, auto theta, auto next) { step->apply(x, theta, next); },
      .jvp = [step](auto x, auto theta, auto dx, auto dtheta, auto out) { step->jvp(x, theta, dx, dtheta, out); },
      .vjp = [step](auto x, auto theta, auto c, auto x_bar, auto theta_bar) { step->vjp(x, theta, c, x_bar, theta_bar); }};
}

}  // namespace onestep
