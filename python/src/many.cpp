// Many problems of one shape at once: solve_many, and the class ManySolutions.
#include <nanobind/stl/optional.h>

#include <algorithm>

#include "errors.h"
#include "records.h"
#include "solver.h"

namespace onestep::python {
namespace {

struct PyManySolutions {
  ManySolutions solutions;
  nb::object kept;
  std::vector<Shape> theta;  ///< the shape of each parameter, for one problem
  std::shared_ptr<Turns> turns = std::make_shared<Turns>();
};

// A list is one array for each problem, anything else is an array that all share.
Many many_of(nb::handle object) {
  if (!nb::isinstance<nb::list>(object)) return array_of(object);
  std::vector<Array> each;
  for (const nb::handle a : nb::borrow<nb::list>(object)) each.push_back(array_of(a));
  return each;
}

std::vector<Many> all_of(nb::handle object) {
  std::vector<Many> all;
  if (nb::isinstance<nb::tuple>(object)) {
    for (const nb::handle part : nb::borrow<nb::tuple>(object)) all.push_back(many_of(part));
  } else {
    all.push_back(many_of(object));
  }
  return all;
}

// A direction for arrays of this shape: with one more axis in front it has one for each problem.
Many direction_of(nb::handle object, const Shape& shape) {
  if (nb::isinstance<nb::list>(object) || is_number(object)) return many_of(object);
  const auto ndim = nb::cast<int>(nb::getattr(object, "ndim", nb::int_(-1)));
  if (ndim != shape.rank() + 1) return many_of(object);
  nb::list each;
  for (const nb::handle one : object) each.append(one);
  return many_of(each);
}

std::vector<Many> directions_of(const char* who, nb::handle object, std::span<const Shape> shapes) {
  std::vector<Many> all;
  if (!nb::isinstance<nb::tuple>(object)) {
    all.push_back(direction_of(object, shapes.empty() ? Shape{} : shapes[0]));
    return all;
  }
  const nb::tuple parts = nb::borrow<nb::tuple>(object);
  if (parts.size() > shapes.size())
    throw MisuseError(std::string("[") + who + "] " + std::to_string(parts.size()) +
                      " directions given, there are at most " + std::to_string(shapes.size()));
  for (std::size_t i = 0; i < parts.size(); ++i) all.push_back(direction_of(parts[i], shapes[i]));
  return all;
}

nb::object numpy_many(const Many& many) {
  if (many.is_shared()) return numpy_of(many[0]);
  std::vector<Array> all;
  for (std::size_t i = 0; i < many.count(); ++i) all.push_back(many[i]);
  return numpy_stack(all);
}

nb::object numpy_manies(const std::vector<Many>& all) {
  if (all.size() == 1) return numpy_many(all[0]);
  nb::list results;
  for (const Many& m : all) results.append(numpy_many(m));
  return nb::tuple(results);
}

PyManySolutions solve_many_once(PySolver& self, const nb::args& arguments, nb::handle start, nb::handle named) {
  std::optional<std::vector<Many>> x0;
  std::size_t first = 0;
  if (!start.is_none()) {
    x0 = all_of(start);
  } else if (!self.has_start) {
    if (arguments.size() == 0) throw MisuseError("[solve_many] no start: solve_many(solver, x0, *parameters)");
    x0 = all_of(arguments[first++]);
  }
  std::vector<Many> theta;
  std::vector<Shape> shapes;
  for (; first < arguments.size(); ++first) {
    theta.push_back(many_of(arguments[first]));
    shapes.push_back(theta.back().count() > 0 ? theta.back()[0].shape() : Shape{});
  }
  const auto is_shared = [](const Many& many) { return many.is_shared(); };
  if (std::all_of(theta.begin(), theta.end(), is_shared) && (!x0 || std::all_of(x0->begin(), x0->end(), is_shared)))
    throw MisuseError(
        "[solve_many] no argument is a list, so there is one problem: list(T) makes the rows of a matrix an array for each "
        "problem");
  const Estimator estimator = estimator_of(named);
  const nb::list kept = kept_of(self.kept);
  // The same solver, with its plans, where a signal stops all problems of this call.
  const Solver solver = self.solver.with(self.options.for_library(std::make_shared<std::atomic<bool>>()));
  const Tracing tracing(self.data, kept);
  ManySolutions solutions = [&] {
    const WithoutGil no_gil;
    return x0 ? solve_many(solver, *x0, theta, estimator) : solve_many(solver, theta, estimator);
  }();
  return {std::move(solutions), tracing.needed(), std::move(shapes)};
}

nb::object vjp(const PyManySolutions& self, nb::handle c) {
  std::vector<Shape> state;
  if (self.solutions.size() > 0)
    for (const Array& part : self.solutions[0].state()) state.push_back(part.shape());
  const std::vector<Many> cotangents = directions_of("vjp", c, state);
  return numpy_manies(without_gil(*self.turns, [&] { return self.solutions.vjp(cotangents); }));
}

nb::object jvp(const PyManySolutions& self, nb::handle v) {
  const std::vector<Many> tangents = directions_of("jvp", v, self.theta);
  return numpy_manies(without_gil(*self.turns, [&] { return self.solutions.jvp(tangents); }));
}

nb::object state_of(const PyManySolutions& self) {
  const std::size_t parts = self.solutions[0].state().size();
  nb::list all;
  for (std::size_t part = 0; part < parts; ++part) all.append(numpy_many(self.solutions.x(part)));
  return nb::tuple(all);
}

PySolution at(const PyManySolutions& self, std::int64_t i) {
  const auto count = static_cast<std::int64_t>(self.solutions.size());
  if (i < -count || i >= count) throw nb::index_error("there are fewer problems");
  PySolution one(self.solutions[static_cast<std::size_t>(i < 0 ? i + count : i)], self.kept);
  one.turns = self.turns;
  return one;
}

PyManySolutions even_if_unconverged(const PyManySolutions& self) {
  PyManySolutions copy = self;
  copy.solutions = self.solutions.even_if_unconverged();
  return copy;
}

}  // namespace

void bind_many(nb::module_& m) {
  nb::class_<PyManySolutions>(m, "ManySolutions", nb::type_slots(slots_of_kept<PyManySolutions>()),
                              "The solutions of many problems, in their order.")
      .def("__len__", [](const PyManySolutions& s) { return s.solutions.size(); })
      .def("__getitem__", at, "i"_a, "The Solution of problem i.")
      .def_prop_ro(
          "x", [](const PyManySolutions& s) { return numpy_many(s.solutions.x()); },
          nb::sig("def x(self) -> numpy.typing.NDArray[numpy.float64]"),
          "The first part of all states, along a new first axis.")
      .def_prop_ro("state", state_of, nb::sig("def state(self) -> tuple[numpy.typing.NDArray[numpy.float64], ...]"),
                   "All parts of the states, such as the multipliers of quadratic programs, each along a new first axis.")
      .def_prop_ro(
          "statuses", [](const PyManySolutions& s) { return s.solutions.statuses(); }, "How each solve ended.")
      .def_prop_ro(
          "failed", [](const PyManySolutions& s) { return s.solutions.failed(); },
          "The problems that did not end at a solution.")
      .def("vjp", vjp, "c"_a, nb::sig("def vjp(self, c: ArrayOrParts) -> typing.Any"),
           "(dx/dtheta)^T c of every problem: c has one cotangent for all, or one for each along a first axis. A parameter "
           "that the problems share gets the sum of their gradients, any other a gradient for each.")
      .def("jvp", jvp, "v"_a, nb::sig("def jvp(self, v: ArrayOrParts) -> typing.Any"),
           "(dx/dtheta) v of every problem, along a first axis.")
      .def("even_if_unconverged", even_if_unconverged,
           "A copy whose derivatives are returned even where a solve did not converge.")
      .def("__reduce__",
           cannot_be_pickled<PyManySolutions>("ManySolutions hold the functions they were traced from and cannot be "
                                              "pickled; their numbers can: s.x, s.state, s.statuses, s.vjp(c), s.jvp(v)"),
           nb::sig("def __reduce__(self) -> typing.Any"))
      .def("__repr__",
           [](const PyManySolutions& s) {
             return "<ManySolutions: " + std::to_string(s.solutions.size()) + " problems, " +
                    std::to_string(s.solutions.failed().size()) + " failed>";
           })
      .def(
          "_repr_html_", [](nb::handle self) { return html_of("of_many", self); }, nb::sig("def _repr_html_(self) -> str"));
  m.def(
      "solve_many", solve_many_once, "solver"_a, "arguments"_a, "start"_a = nb::none(), "estimator"_a = nb::none(),
      nb::sig(
          "def solve_many(solver: Solver, *arguments: ArrayOrParts | list[typing.Any], start: typing.Any = None, estimator: "
          "Estimator | None = None) -> ManySolutions"),
      "Solves many problems of one shape on all threads. Arguments are those of Solver.solve; a list has an array for each "
      "problem, an array is shared by all (list(X) makes a list of the rows of a matrix).");
}

}  // namespace onestep::python
