// The module onestep._core. What users import is made of it in python/onestep/.
#include "common.h"

NB_MODULE(_core, m) {
  using namespace onestep::python;
#ifdef NDEBUG
  // What a module of the user's keeps until the interpreter ends is no leak of ours; tests look for those
  // (test_lifetime.py).
  nb::set_leak_warnings(false);
#endif
  m.attr("__version__") = ONESTEP_VERSION;
  bind_errors(m);
  bind_arrays(m);
  bind_records(m);
  bind_options(m);
  bind_expr(m);
  bind_operations(m);
  bind_functions(m);
  bind_foreign(m);
  bind_solution(m);
  bind_prepared(m);
  bind_many(m);
  bind_solver(m);
  bind_methods(m);
  bind_program(m);
  bind_layers(m);
  bind_bilevel(m);
  bind_data(m);
}
