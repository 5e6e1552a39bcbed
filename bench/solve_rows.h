// What rows of the suite "solve" are made of: a prepared solver with its derivative, and that derivative's cost over a
// solve.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness.h"
#include "onestep/onestep.h"
#include "reference.h"

namespace onestep::bench {

inline Shape vector_shape(std::size_t n) { return {static_cast<std::int64_t>(n)}; }

// A prepared solver with memory for the derivative of |x|²/2, x the first part of the state.
class Ours {
 public:
  Ours(const Solver& solver, Parts x0, Parts theta, const Estimator& estimator)
      : prepared_(solver, x0, theta, estimator), x0_(std::move(x0)), theta_(std::move(theta)) {
    for (const Array& t : theta_) bars_.emplace_back(static_cast<std::size_t>(t.size()));
    outputs_.assign(bars_.begin(), bars_.end());
    solve();
    if (!is_solution(solution_->status())) throw std::runtime_error("our solve: " + solution_->message());
    c_.assign(state().begin(), state().begin() + x0_[0].size());
  }

  void solve() { solution_ = &prepared_.solve(x0_, theta_); }
  void vjp() {
    const std::span<const double> c = c_;
    solution_->vjp_into({&c, 1}, outputs_);
  }
  void solve_and_vjp() {
    solve();
    vjp();
  }

  std::span<const double> state() const { return solution_->entries(); }
  std::span<const double> x() const { return c_; }
  const Solution& solution() const { return *solution_; }
  const std::vector<double>& bar(std::size_t parameter = 0) const { return bars_[parameter]; }

 private:
  Prepared prepared_;
  Parts x0_, theta_;
  const Solution* solution_ = nullptr;
  std::vector<double> c_;
  std::vector<std::vector<double>> bars_;
  std::vector<std::span<double>> outputs_;
};

// What a derivative adds to a solve. It must be `same`'s to `tolerance`, which leaves room for the one-step error.
inline void over_solve(Suite& suite, const std::string& row, Unit unit, Ours& with, Ours& without, const Ours& same,
                       double tolerance, std::optional<Bar> bar) {
  with.vjp();
  must_agree(row, with.bar(), same.bar(), tolerance);
  suite.time(row, unit, {[&] { with.solve_and_vjp(); }}, {{[&] { without.solve(); }}}, bar);
}

}  // namespace onestep::bench
