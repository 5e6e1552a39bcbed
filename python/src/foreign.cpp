// Steps that are not traced: functions of Python on NumPy's arrays, with derivatives of their own.
#include "foreign.h"

#include <algorithm>

#include "arrays.h"
#include "gil.h"

namespace onestep::python {
namespace {

using Vector = ForeignStep::Vector;
using ConstVector = ForeignStep::ConstVector;
using Thetas = ForeignStep::Thetas;

nb::tuple arrays(Thetas theta) { return numpy_tuple(std::vector<Array>(theta.begin(), theta.end())); }

// What a function returned, where the library wants it.
void write(const char* who, nb::handle result, Vector to) {
  const Array array = array_of(result);
  if (static_cast<std::size_t>(array.size()) != to.size())
    throw MisuseError(std::string("[ForeignStep] ") + who + " returned " + std::to_string(array.size()) +
                      " entries, needed are " + std::to_string(to.size()));
  array.copy_to(to);
}

nb::object or_none(ConstVector vector) { return vector.empty() ? nb::none() : numpy_of(vector); }

void apply(nb::handle function, ConstVector x, Thetas theta, Vector next) {
  with_gil([&] { write("apply", function(numpy_of(x), *arrays(theta)), next); });
}

void jvp(nb::handle function, ConstVector x, Thetas theta, ConstVector dx, Thetas dtheta, Vector out) {
  with_gil([&] {
    const nb::object tangents = dtheta.empty() ? nb::none() : nb::object(arrays(dtheta));
    write("jvp", function(numpy_of(x), arrays(theta), or_none(dx), tangents), out);
  });
}

void vjp_with_gil(nb::handle function, ConstVector x, Thetas theta, ConstVector c, Vector x_bar,
                  std::span<const Vector> theta_bar) {
  const nb::object result = function(numpy_of(x), arrays(theta), numpy_of(c));
  if (!nb::isinstance<nb::tuple>(result) || nb::len(result) != 2)
    throw MisuseError("[ForeignStep] vjp returns two things: the cotangent of x, and a tuple of those of the parameters");
  if (!x_bar.empty()) write("vjp", result[0], x_bar);
  if (theta_bar.empty()) return;
  const nb::object bars = result[1];
  if (!nb::isinstance<nb::tuple>(bars) || nb::len(bars) != theta.size())
    throw MisuseError("[ForeignStep] the second thing that vjp returns is a tuple of " + std::to_string(theta.size()) +
                      " cotangents, one for each parameter");
  for (std::size_t i = 0; i < theta_bar.size(); ++i)
    if (!theta_bar[i].empty()) write("vjp", bars[i], theta_bar[i]);
}

void vjp(nb::handle function, ConstVector x, Thetas theta, ConstVector c, Vector x_bar, std::span<const Vector> theta_bar) {
  with_gil([&] { vjp_with_gil(function, x, theta, c, x_bar, theta_bar); });
}

nb::object checked(const char* name, nb::handle function, bool is_needed) {
  if ((function.is_none() && is_needed) || (!function.is_none() && !PyCallable_Check(function.ptr())))
    throw nb::type_error((std::string("ForeignStep: ") + name + " must be a function").c_str());
  return nb::borrow(function);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const PyForeignStep& step = *nb::inst_ptr<PyForeignStep>(self);
  Py_VISIT(step.apply.ptr());
  Py_VISIT(step.jvp.ptr());
  Py_VISIT(step.vjp.ptr());
  return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {0, nullptr}};

}  // namespace

ForeignStep library_step(const PyForeignStep& step) {
  ForeignStep made;
  made.apply = [f = nb::handle(step.apply)](ConstVector x, Thetas theta, Vector next) { apply(f, x, theta, next); };
  if (!step.jvp.is_none())
    made.jvp = [f = nb::handle(step.jvp)](ConstVector x, Thetas theta, ConstVector dx, Thetas dtheta, Vector out) {
      jvp(f, x, theta, dx, dtheta, out);
    };
  if (!step.vjp.is_none())
    made.vjp = [f = nb::handle(step.vjp)](ConstVector x, Thetas theta, ConstVector c, Vector x_bar,
                                          std::span<const Vector> bars) { vjp(f, x, theta, c, x_bar, bars); };
  return made;
}

void bind_foreign(nb::module_& m) {
  nb::class_<PyForeignStep>(
      m, "ForeignStep", nb::type_slots(slots),
      "A step that is not traced: any Python, on arrays. `apply(x, *theta)` returns F(x, theta), with the state as one "
      "vector. `jvp(x, theta, dx, dtheta)` returns (dF/dx) dx + (dF/dtheta) dtheta, where None stands for a direction that "
      "is zero. `vjp(x, theta, c)` returns the cotangent of x and a tuple of those of the parameters. Either derivative may "
      "be left out; an estimator that needs it then raises MisuseError.")
      .def(
          "__init__",
          [](PyForeignStep* self, nb::handle f, nb::handle forward, nb::handle backward) {
            new (self)
                PyForeignStep{checked("apply", f, true), checked("jvp", forward, false), checked("vjp", backward, false)};
          },
          "apply"_a, "jvp"_a = nb::none(), "vjp"_a = nb::none(),
          nb::sig("def __init__(self, apply: collections.abc.Callable[..., typing.Any], jvp: collections.abc.Callable[..., "
                  "typing.Any] | None = None, vjp: collections.abc.Callable[..., typing.Any] | None = None) -> None"));
}

}  // namespace onestep::python
