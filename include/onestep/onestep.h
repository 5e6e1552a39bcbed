// Everything but the interop headers.
#pragma once

#include "onestep/array.h"            // numbers with a shape
#include "onestep/check_gradients.h"  // is a derivative right?
#include "onestep/diff.h"             // jvp, vjp, grad, jacobian, hessian
#include "onestep/expr.h"             // operations
#include "onestep/function.h"         // tracing
#include "onestep/plan.h"             // running
#include "onestep/threads.h"          // how many threads
