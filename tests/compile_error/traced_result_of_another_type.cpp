// error: a traced function returns an Expr, or several
#include <onestep/onestep.h>

using namespace onestep;

// A traced function returns expressions.
Function f() {
  return traced([](const Expr& x) { return to_string(x.shape()); }, Shape{3});
}
