// error: invalid initialization of reference of type .const onestep::Factor|no matching function for call to .solve
#include <onestep/onestep.h>

using namespace onestep;

// A factorisation is made once, by name, and shared: solve(cholesky(h), g).
Expr newton_direction(const Expr& h, const Expr& g) { return solve(h, g); }
