// What the examples in the public headers take as given: names that are declared and never defined, for the examples are
// compiled and not run. In expr.h, operations.h, diff.h and traced_program.h they are inside a traced function, so values
// are expressions there; in dual.h they are dual numbers.
#pragma once

#include <onestep/data.h>
#include <onestep/dual.h>
#include <onestep/dual_step.h>
#include <onestep/onestep.h>

#include <iostream>

#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-parameter"
#pragma GCC diagnostic ignored "-Wunused-value"

namespace examples {

using namespace onestep;

#ifdef ONESTEP_EXPRESSIONS
using Value = Expr;
extern Expr f;
#elif defined(ONESTEP_DUALS)
using T = Dual<2>;
using Value = T;
extern Function f;
#else
using Value = Array;
extern Function f;
extern Function step, step_and_vjp, step_and_derivatives;
#endif

extern Value A, H, M, Y, a, b, bars, c, cy, cz, g, lambda, logits, newton_map, r, residual, scores, u, v, vw, vx, w, x, x0,
    y, z, other_w;

extern Plan plan;
extern Workspace workspace;
extern std::vector<double> next, value, gradient, influence;
extern GradientCheck check;
extern QuadraticProgram p;
extern Solver fit, slow;
extern Solution s;
extern Dataset valid;
extern Inner inner;
extern Many weights, penalty;

}  // namespace examples
