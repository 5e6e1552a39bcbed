// error: solve takes a factorisation: solve.cholesky.H., b.
#include <onestep/onestep.h>

using namespace onestep;

// A factorisation is made once, by name, and shared: solve(cholesky(h), g).
Expr newton_direction(const Expr& h, const Expr& g) { return solve(h, g); }
