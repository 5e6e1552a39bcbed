// A quadratic program whose data are expressions.
#pragma once

#include <limits>

#include "onestep/export.h"
#include "onestep/expr.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// A quadratic program whose data are traced functions of the parameters: the expressions beside QuadraticProgram, with the
/// same meaning and the same defaults. Designators follow the order of the members; the functions below may come in any.
///
///     TracedProgram p{.Q = eye(3), .q = -1.0 * x, .lo = 0.0};
///     TracedProgram same = TracedProgram{}.bounds(0.0).objective(eye(3), -1.0 * x);
struct TracedProgram {
  Expr Q = {}, q = {}, A = {}, b = {}, G = {};
  Expr l = -std::numeric_limits<double>::infinity(), u = std::numeric_limits<double>::infinity();
  Expr lo = -std::numeric_limits<double>::infinity(), hi = std::numeric_limits<double>::infinity();

  /// The same with the objective ½xᵀQx + qᵀx.
  ///
  ///     TracedProgram p = TracedProgram{}.objective(eye(3), -1.0 * x);
  TracedProgram objective(const Expr& its_Q, const Expr& its_q) const {
    TracedProgram p = *this;
    p.Q = its_Q, p.q = its_q;
    return p;
  }
  /// The same with the equalities Ax = b.
  ///
  ///     TracedProgram p = TracedProgram{}.objective(H, g).equalities(A, b);
  TracedProgram equalities(const Expr& its_A, const Expr& its_b) const {
    TracedProgram p = *this;
    p.A = its_A, p.b = its_b;
    return p;
  }
  /// The same with the rows l ≤ Gx ≤ u.
  ///
  ///     TracedProgram p = TracedProgram{}.objective(H, g).rows(-1.0, A, b);
  TracedProgram rows(const Expr& its_l, const Expr& its_G, const Expr& its_u) const {
    TracedProgram p = *this;
    p.l = its_l, p.G = its_G, p.u = its_u;
    return p;
  }
  /// The same with the bounds lo ≤ x ≤ hi.
  ///
  ///     TracedProgram p = TracedProgram{}.objective(H, g).bounds(0.0, 1.0);
  TracedProgram bounds(const Expr& its_lo, const Expr& its_hi = std::numeric_limits<double>::infinity()) const {
    TracedProgram p = *this;
    p.lo = its_lo, p.hi = its_hi;
    return p;
  }
};

}  // namespace onestep
ONESTEP_EXPORT_END
