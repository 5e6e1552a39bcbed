// error: no matching function for call to .results
#include <onestep/onestep.h>

using namespace onestep;

// A traced function returns expressions.
Function f() {
  return trace([](const Expr& x) { return to_string(x.shape()); }, Shape{3});
}
