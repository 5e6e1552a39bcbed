// Everything but the interop headers and the readers of files (onestep/data.h).
#pragma once

#include "onestep/array.h"              // numbers with a shape
#include "onestep/bilevel.h"            // outer problems: minimise g(x(θ), θ)
#include "onestep/check_gradients.h"    // is a derivative right?
#include "onestep/context.h"            // where computations run
#include "onestep/diff.h"               // jvp, vjp, grad, jacobian, hessian
#include "onestep/dual.h"               // numbers with derivatives
#include "onestep/dual_step.h"          // steps differentiated by running them
#include "onestep/error.h"              // what is thrown
#include "onestep/estimate.h"           // derivatives of what a solver converges to
#include "onestep/expr.h"               // expressions and the operations of the table
#include "onestep/function.h"           // tracing
#include "onestep/operations.h"         // operations made of others
#include "onestep/own_loop.h"           // loops of your own around a step
#include "onestep/parts.h"              // arrays that belong together
#include "onestep/plan.h"               // running
#include "onestep/quadratic_program.h"  // a convex quadratic program, as data
#include "onestep/solve_many.h"         // many problems at once
#include "onestep/solve_options.h"      // when a solve stops, what it cost
#include "onestep/solver.h"             // fixed points, gradient descent, Newton
#include "onestep/status.h"             // how a solve ended
#include "onestep/threads.h"            // how many threads
#include "onestep/traced_program.h"     // a quadratic program whose data are expressions
