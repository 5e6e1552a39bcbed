// error: one vector is Array.0.1, 0.1., two parts are
#include <onestep/onestep.h>

using namespace onestep;

Solution fit(const Solver& solver) { return solve(solver, {0, 0.5}, ones(2)); }
