// What every file of the Python module includes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <onestep/onestep.h>

namespace onestep::python {

namespace nb = nanobind;
using namespace nb::literals;

// What notebooks show of an object: a function of python/onestep/_html.py, which is imported when it is first asked for.
inline nb::object html_of(const char* function, nb::handle object) {
  return nb::module_::import_("onestep._html").attr(function)(object);
}

// Each adds what its file is about to the module.
void bind_arrays(nb::module_& m);
void bind_bilevel(nb::module_& m);
void bind_data(nb::module_& m);
void bind_errors(nb::module_& m);
void bind_expr(nb::module_& m);
void bind_foreign(nb::module_& m);
void bind_functions(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_many(nb::module_& m);
void bind_methods(nb::module_& m);
void bind_operations(nb::module_& m);
void bind_options(nb::module_& m);
void bind_prepared(nb::module_& m);
void bind_program(nb::module_& m);
void bind_records(nb::module_& m);
void bind_solution(nb::module_& m);
void bind_solver(nb::module_& m);

}  // namespace onestep::python
