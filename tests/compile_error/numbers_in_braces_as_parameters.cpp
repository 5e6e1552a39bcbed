// error: one vector is Array.0.1, 0.1., two parts are
#include <onestep/onestep.h>

using namespace onestep;

// One vector of two penalties, or two parameters?
Solution fit(const Solver& solver) { return solve(solver, zeros(2), {0.1, 0.1}); }
