// error: an index is a whole number known while tracing
#include <onestep/onestep.h>

using namespace onestep;

Expr middle(const Expr& x) { return x[0.5]; }
