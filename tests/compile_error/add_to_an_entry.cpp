// error: an entry of an expression cannot be changed: make the whole anew
#include <onestep/onestep.h>

using namespace onestep;

Expr first_is_larger(Expr x) {
  x[0] += 1.0;
  return x;
}
