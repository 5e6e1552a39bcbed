// Many problems of one shape at once: solved on all threads, and differentiated together.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "onestep/estimate.h"
#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// A parameter, or a part of the state, of many problems: one array that all share, or one for each.
///
///     Many penalty = 0.1;                                             // the same for all problems
///     Many weights = std::vector<Array>{ones(270), zeros(270)};       // one for each of two
///     Many rows = Many::rows(A);                                      // the rows of a matrix, one for each
class Many {
 public:
  Many(Array shared) : arrays_{std::move(shared)} {}
  Many(double shared) : arrays_{Array(shared)} {}
  Many(std::vector<Array> each) : arrays_(std::move(each)), is_shared_(false) {}
  /// A vector for each problem: the rows of a matrix. Throws MisuseError for anything but a matrix.
  static Many rows(const Array& matrix);

  bool is_shared() const { return is_shared_; }
  /// How many arrays there are: 1 where it is shared.
  std::size_t count() const { return arrays_.size(); }
  /// That of a problem; throws MisuseError where there is none.
  ///
  ///     Array of_second = weights[1];
  const Array& operator[](std::size_t problem) const&;
  Array operator[](std::size_t problem) const&&;
  /// One for each problem, as the rows of a matrix. Throws MisuseError where they are not vectors or numbers, or shared.
  Array matrix() const;

 private:
  std::vector<Array> arrays_;
  bool is_shared_ = true;
};

/// The solutions of many problems, in their order. What it differentiates by is the estimator it was made with. Copies share
/// their memory; use them from one thread at a time.
///
///     ManySolutions s = solve_many(fit, {x0}, {weights, penalty});
///     std::vector<Many> g = s.vjp({s.x()});       // g[0]: a gradient for each problem; g[1]: the sum over all of them
class ManySolutions {
 public:
  std::size_t size() const;
  /// Solution i, with its status, certificate and everything else; throws MisuseError where there is none.
  ///
  ///     Status of_second = solve_many(fit, {x0}, {weights, penalty})[1].status();
  Solution operator[](std::size_t i) const;
  /// A part of all states.
  Many x(std::size_t part = 0) const;
  /// How each solve ended.
  std::vector<Status> statuses() const;
  /// The problems that did not end at a solution.
  std::vector<std::size_t> failed() const;

  /// (dx/dθ)ᵀ c of every problem: a cotangent for each part of the state (those left out are zero), and a result for each
  /// parameter. A parameter that the problems share gets the sum of their gradients (never the mean), added up in an order
  /// that does not depend on the number of threads; any other gets a gradient for each problem, all of them in one piece of
  /// memory, which lives as long as one of them. Throws as Solution::vjp does, naming the problem; even_if_unconverged()
  /// permits the same.
  std::vector<Many> vjp(const std::vector<Many>& c) const;
  /// (dx/dθ) v of every problem: a tangent for each parameter, and a result for each part of the state. Throws likewise.
  std::vector<Many> jvp(const std::vector<Many>& v) const;
  /// A copy whose derivatives are returned even where a solve did not converge, see Solution::even_if_unconverged. A problem
  /// that has none to return contributes NaN.
  ManySolutions even_if_unconverged() const;

 private:
  friend class PreparedMany;
  struct ONESTEP_HIDDEN State;
  explicit ManySolutions(std::shared_ptr<State> state) : state_(std::move(state)) {}
  State& state() const;
  std::shared_ptr<State> state_;
  bool even_if_unconverged_ = false;
};

/// Solves a problem for each entry of what is not shared, on as many threads as there are (onestep/threads.h), each problem
/// on one of them. Results have the same bits as solve() of each problem alone, and for any number of threads. The solver's
/// lambdas are called once; a foreign step and SolveOptions::callback are called from several threads at once. Throws
/// MisuseError where counts or shapes do not fit; numerical trouble is the status of a problem. What a callback throws is
/// thrown here, that of the first problem which did.
///
///     ManySolutions s = solve_many(fit, {x0}, {std::vector<Array>{w, other_w}});
ManySolutions solve_many(const Solver& solver, const std::vector<Many>& x0, const std::vector<Many>& theta,
                         const Estimator& estimator = {});
/// From the start the solver was given with Solver::from, or starts by itself.
///
///     ManySolutions s = solve_many(fit.from(x0), {std::vector<Array>{w, other_w}});
ManySolutions solve_many(const Solver& solver, const std::vector<Many>& theta, const Estimator& estimator = {});

/// A solver prepared for so many problems of given shapes: solves them again and again without tracing, planning or, once
/// each has been solved, allocating for them. Like Prepared it is the promise that what the solver's lambdas capture does
/// not change.
///
///     PreparedMany layer(fit, {x0}, {std::vector<Array>{w, other_w}});
///     ManySolutions s = layer.solve({std::vector<Array>{w, other_w}});
class PreparedMany {
 public:
  PreparedMany(const Solver& solver, const std::vector<Many>& x0, const std::vector<Many>& theta,
               const Estimator& estimator = {});
  PreparedMany(const Solver& solver, const std::vector<Many>& theta, const Estimator& estimator = {});
  /// From the starts it was made with, or from others; shapes and counts as it was made for, and shared is what was shared.
  ManySolutions solve(const std::vector<Many>& theta);
  ManySolutions solve(const std::vector<Many>& x0, const std::vector<Many>& theta);

 private:
  PreparedMany(const Solver& solver, const std::vector<Many>* x0, const std::vector<Many>& theta,
               const Estimator& estimator);
  std::vector<Many> x0_;
  std::shared_ptr<ManySolutions::State> state_;
};

}  // namespace onestep
ONESTEP_EXPORT_END
