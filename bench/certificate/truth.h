// What x̄(θ) and dx̄/dθ truly are, in long double and without the library: the root of R(x, θ) by Newton's method with the
// dense matrix ∂R/∂x from dual numbers, and J = -(∂R/∂x)⁻¹ ∂R/∂θ by Gaussian elimination.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "certificate/field.h"

namespace onestep::bench {

struct RealMatrix {
  std::size_t rows = 0, columns = 0;
  std::vector<Real> entries = {};
  RealMatrix() = default;
  RealMatrix(std::size_t m, std::size_t n) : rows(m), columns(n), entries(m * n) {}
  Real& operator()(std::size_t i, std::size_t j) { return entries[i * columns + j]; }
  Real operator()(std::size_t i, std::size_t j) const { return entries[i * columns + j]; }
};

// M⁻¹ B with partial pivoting and one sweep of refinement; none where a pivot vanishes. `condition`, where wanted, is
// ‖M‖ ‖M⁻¹‖ in the Frobenius norm.
std::optional<RealMatrix> solve_dense(const RealMatrix& M, const RealMatrix& B, Real* condition = nullptr);
Real norm_of(std::span<const Real> v);
// The largest singular value, and the spectral radius from the norm of a high power.
double spectral_norm(const RealMatrix& A);
double spectral_radius(const RealMatrix& A);

struct Truth {
  bool reliable = false;
  std::vector<Real> x;  // all parts, one behind the other
  RealMatrix J;         // dx̄/dθ, all parameters one behind the other
  Real uncertain = 0;   // ‖J‖ is right to about this, absolute
  Real condition = 0;   // of ∂R/∂x
  double norm = 0;      // ‖∂F/∂x‖ at x̄; 0 for Newton's method and quadratic programs
  double radius = 0;    // its spectral radius
};

// The functions the truth is computed from, for flat x and θ.
struct RootFunctions {
  using Vector = std::vector<Real>;
  std::function<Vector(const Vector& x, const Vector& theta)> step = {};  // F, where the solver iterates a map
  std::function<Vector(const Vector& x, const Vector& theta)> residual;
  // Columns of ∂R/∂x and of ∂R/∂θ.
  std::function<RealMatrix(const Vector&x, const Vector&theta)> by_x, by_theta;
};

// Iterates the step (where there is one), then Newton's method to the rounding level of long double.
Truth find_root(const RootFunctions& functions, std::vector<Real> x, const std::vector<Real>& theta);

// J = -(∂R/∂x)⁻¹ ∂R/∂θ at this x; none where the matrix is singular.
std::optional<RealMatrix> derivative_at(const RootFunctions& functions, const std::vector<Real>& x,
                                        const std::vector<Real>& theta, Real* condition = nullptr);

namespace detail {
template <class T> Field<T> vector_field(const std::vector<T>& v) {
  return Field<T>(Shape{static_cast<std::int64_t>(v.size())}, v);
}
inline std::vector<Tangent> with_tangents(const std::vector<Real>& v) { return {v.begin(), v.end()}; }
}  // namespace detail

// R as a generic lambda of two vectors.
template <class R> RootFunctions root_functions(R residual) {
  using Vector = RootFunctions::Vector;
  RootFunctions f;
  f.residual = [residual](const Vector& x, const Vector& theta) {
    return residual(detail::vector_field(x), detail::vector_field(theta)).entries();
  };
  const auto jacobian = [residual](const Vector& x, const Vector& theta, bool by_theta) {
    std::vector<Tangent> at_x = detail::with_tangents(x), at_theta = detail::with_tangents(theta);
    std::vector<Tangent>& moved = by_theta ? at_theta : at_x;
    RealMatrix result(x.size(), moved.size());
    for (std::size_t j = 0; j < moved.size(); ++j) {
      moved[j].d = 1;
      const Field<Tangent> value = residual(detail::vector_field(at_x), detail::vector_field(at_theta));
      for (std::size_t i = 0; i < x.size(); ++i) result(i, j) = value[i].d;
      moved[j].d = 0;
    }
    return result;
  };
  f.by_x = [jacobian](const Vector& x, const Vector& theta) { return jacobian(x, theta, false); };
  f.by_theta = [jacobian](const Vector& x, const Vector& theta) { return jacobian(x, theta, true); };
  return f;
}

// The same for x = F(x, θ).
template <class F> RootFunctions map_functions(F step) {
  RootFunctions f = root_functions([step](auto x, auto theta) { return x - step(x, theta); });
  f.step = [step](const std::vector<Real>& x, const std::vector<Real>& theta) {
    return step(detail::vector_field(x), detail::vector_field(theta)).entries();
  };
  return f;
}

}  // namespace onestep::bench
