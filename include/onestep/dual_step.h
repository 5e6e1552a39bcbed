// Steps of dual numbers: code that is a template of its number type, as a step any solver takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onestep/array.h"
#include "onestep/dual.h"
#include "onestep/export.h"
#include "onestep/solver.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// A parameter as a step of dual numbers sees it: read like an Array, with entries of another type.
///
///     const std::vector<double> entries{1.0, 2.0, 3.0};
///     const double second = ArrayOf<double>(Shape{3}, entries)(1);
template <class T> class ArrayOf {
 public:
  ArrayOf(const Shape& shape, std::span<const T> entries) : shape_(shape), entries_(entries) {}
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return shape_.size(); }
  /// All entries, row by row.
  std::span<const T> values() const { return entries_; }
  /// The value of a number, or of an array with one entry. Throws MisuseError otherwise.
  const T& item() const {
    if (size() != 1) throw MisuseError("[ArrayOf] item of an array of shape " + to_string(shape_));
    return entries_[0];
  }
  /// An entry; throws MisuseError outside the shape.
  const T& operator()(std::int64_t i) const {
    if (shape_.rank() != 1 || i < 0 || i >= shape_[0])
      throw MisuseError("[ArrayOf] (" + std::to_string(i) + ") is outside " + to_string(shape_));
    return entries_[static_cast<std::size_t>(i)];
  }
  const T& operator()(std::int64_t row, std::int64_t column) const {
    if (shape_.rank() != 2 || row < 0 || row >= shape_[0] || column < 0 || column >= shape_[1])
      throw MisuseError("[ArrayOf] (" + std::to_string(row) + ", " + std::to_string(column) + ") is outside " +
                        to_string(shape_));
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
ONESTEP_EXPORT_END
