// The derivative of a solved quadratic program as a point of the contract: of its last step, or at its solution.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "linear/vector.h"
#include "qp/data.h"
#include "qp/derivative.h"
#include "solve/method.h"

namespace onestep::detail {

/// The derivative of the solved program: of the last step, or of its solution. As an equation it reads w - S(θ) = 0, with
/// the linear solve inside S: its derivative by w is the identity.
class QpPoint final : public SolutionPoint, private InnerSolve {
 public:
  QpPoint(QpDerivative& derivative, QpDerivativeAt at, QpDataAt& data, const Sizes& sizes, double sign)
      : derivative_(derivative), at_(at), data_(data), sizes_(sizes), sign_(sign) {}

  void bind(std::span<const Array>) override {}
  bool apply(ConstVector, ConstVector, Vector) override { return true; }
  bool control(ConstVector, Vector) override { return true; }
  ConstVector where() const override { return {}; }
  void jvp_x(ConstVector dx, Vector out) override { identity(dx, out); }
  void vjp_x(ConstVector c, Vector out) override { identity(c, out); }
  void jvp_theta(std::span<const Array> dtheta, Vector out) override {
    derivative_.linearise(at_);
    const auto n = static_cast<std::size_t>(sizes_.n), m = static_cast<std::size_t>(sizes_.m),
               p = static_cast<std::size_t>(sizes_.p);
    residual_ = derivative_.jvp(data_.push_forward(dtheta), out.first(n), out.subspan(n, m), out.subspan(n + m, p),
                                out.subspan(n + m + p, n));
    for (double& e : out) e *= sign_;
    data_.owner = this;
    last_is_jvp_ = true;
    last_.assign(out.begin(), out.end());
    error_terms_.reset();
  }
  void vjp_theta(ConstVector c, std::span<const Vector> out) override {
    derivative_.linearise(at_);
    const auto n = static_cast<std::size_t>(sizes_.n), m = static_cast<std::size_t>(sizes_.m),
               p = static_cast<std::size_t>(sizes_.p);
    residual_ =
        derivative_.vjp(c.first(n), c.subspan(n, m), c.subspan(n + m, p), c.subspan(n + m + p, n), data_.cotangents());
    data_.pull_back(out);
    for (const Vector o : out)
      for (double& e : o) e *= sign_;
    data_.owner = this;
    last_is_jvp_ = false;
    last_.assign(c.begin(), c.end());
    last_size_ = norm(out);
    error_terms_.reset();
  }
  InnerSolve* inner_solve() override { return this; }
  ErrorTerms error_terms() override {
    if (!error_terms_) error_terms_ = measure_error();
    return *error_terms_;
  }

 private:
  double residual() const override { return residual_; }
  double tolerance() const override { return 1e-10; }

  // Of the step (sign 1) A is zero at the solution; of the equation (sign -1) it is the identity.
  void identity(ConstVector v, Vector out) const {
    if (sign_ < 0)
      std::ranges::copy(v, out.begin());
    else
      std::ranges::fill(out, 0.0);
  }

  /// The last derivative against the one by the active set's own factor at the optimum, both in extended precision; and what
  /// the error that is left in these two, and rounding of the result, do to it.
  ErrorTerms measure_error();
  /// At a kink of the data the solution has no derivative: where they may have one, the derivative is taken with parameters
  /// beside those given, and its change counts.
  template <class Derivative> void look_for_kinks(ErrorTerms& terms, double size, const Derivative& derivative);
  std::string reason();
  double norm_of_pulled_back(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
    for (std::size_t i = 0; i < blocks; ++i)
      for (std::size_t k = 0; k < a[i].size(); ++k) data_.bars()[i][k] = a[i][k] - b[i][k];
    data_.owner = nullptr;
    return norm(data_.pulled_back());
  }

  QpDerivative& derivative_;
  QpDerivativeAt at_;
  QpDataAt& data_;
  const Sizes& sizes_;
  double sign_;
  double residual_ = 0;
  bool last_is_jvp_ = false;
  std::vector<double> last_;  // what jvp returned, or the cotangent vjp was given
  double last_size_ = 0;      // of what vjp returned
  std::optional<ErrorTerms> error_terms_;
};

/// Why a solution is degenerate, in words; empty: it is not.
std::string describe(const QpDegeneracy& found, const QpData& data);

}  // namespace onestep::detail
