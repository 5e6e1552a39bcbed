// error: .* a lambda is traced by traced.f, shapes....; trace.A. is the trace of a matrix
#include <onestep/onestep.h>

using namespace onestep;

// trace(A) is the sum of a diagonal; a lambda is traced.
Function f() {
  return trace([](const Expr& x) { return square(x); }, Shape{3});
}
