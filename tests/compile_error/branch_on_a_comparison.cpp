// error: where.condition, a, b. chooses
#include <onestep/onestep.h>

using namespace onestep;

Expr positive_part(const Expr& x) {
  if (x < 0.0) return 0.0;
  return x;
}
