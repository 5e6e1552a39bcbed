// Derivatives, as expressions like any other: take them inside a traced function, nest them to any order.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "onestep/export.h"
#include "onestep/expr.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// (∂y/∂x) v: how y moves when x moves along v. `x` may be any expression y was made from, not only an input: it is then
/// taken as independent. What y does not depend on gives zero. Signs, numbers, reshapes and slices are simplified together
/// with what is made of them, so that y may not contain such an x any more: where it does not at all, this throws
/// MisuseError. An input is never lost.
///
///     Expr dy = jvp(y, x, v);
Expr jvp(const Expr& y, const Expr& x, const Expr& v);
/// Several results by several arguments moving together: Σⱼ (∂yᵢ/∂xⱼ) vⱼ for each i.
///
///     std::vector<Expr> dy = jvp(std::vector{y, z}, std::vector{x, w}, std::vector{vx, vw});
std::vector<Expr> jvp(std::span<const Expr> ys, std::span<const Expr> xs, std::span<const Expr> vs);

/// (∂y/∂x)ᵀ c: how the number ⟨c, y⟩ depends on x.
///
///     Expr wbar = vjp(newton_map, w, c);
Expr vjp(const Expr& y, const Expr& x, const Expr& c);
/// Several: Σᵢ (∂yᵢ/∂xⱼ)ᵀ cᵢ for each j.
///
///     std::vector<Expr> bars = vjp(std::vector{y, z}, std::vector{x, w}, std::vector{cy, cz});
std::vector<Expr> vjp(std::span<const Expr> ys, std::span<const Expr> xs, std::span<const Expr> cs);

/// The gradient of a number. Throws MisuseError when y is not one: use jacobian, or sum(y).
///
///     Expr g = grad(f, x);
Expr grad(const Expr& y, const Expr& x);
/// By several arguments at once, in one pass.
///
///     std::vector<Expr> g = grad(f, {x, w});
std::vector<Expr> grad(const Expr& y, std::span<const Expr> xs);
inline std::vector<Expr> grad(const Expr& y, std::initializer_list<Expr> xs) {
  return grad(y, std::span(xs.begin(), xs.size()));
}

/// ∂y/∂x as a matrix with a row for each entry of y and a column for each entry of x (a vector where either is a number,
/// entries of matrices counted row by row). One block of directions where only vectors depend on x; otherwise one direction
/// after another, which makes a graph as many times as large: prefer jvp or vjp then.
///
///     Expr J = jacobian(residual, x);
Expr jacobian(const Expr& y, const Expr& x);
/// The second derivative of a number, as a matrix.
///
///     Expr H = hessian(f, x);
Expr hessian(const Expr& y, const Expr& x);
/// The Hessian times v, without the Hessian.
///
///     Expr Hv = hvp(f, x, v);
Expr hvp(const Expr& y, const Expr& x, const Expr& v);

}  // namespace onestep
ONESTEP_EXPORT_END
