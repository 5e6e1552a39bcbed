// The class Prepared: a solver for given shapes, which solves again and again without tracing, planning or allocating.
#include "errors.h"
#include "records.h"
#include "solver.h"

namespace onestep::python {
namespace {

struct PyPrepared {
  Prepared prepared;
  nb::object kept;
  bool has_start;  ///< so that all arguments of solve are parameters
  std::shared_ptr<Turns> turns = std::make_shared<Turns>();
};

PyPrepared prepare(PySolver& self, const nb::args& arguments, nb::handle start, nb::handle named) {
  const Arguments given = arguments_of_solve(self, arguments, start);
  const Estimator estimator = estimator_of(named);
  const nb::list kept = kept_of(self.kept);
  const Tracing tracing(self.data, kept);
  Prepared prepared = [&] {
    const WithoutGil no_gil;
    return given.start ? Prepared(self.solver, *given.start, given.theta, estimator)
                       : Prepared(self.solver, given.theta, estimator);
  }();
  return {std::move(prepared), tracing.needed(), self.has_start};
}

PySolution solve_prepared(PyPrepared& self, const nb::args& arguments, nb::handle start) {
  std::optional<Parts> x0;
  std::size_t first = 0;
  if (!start.is_none()) {
    x0 = parts_of(start);
  } else if (!self.has_start) {
    if (arguments.size() == 0) throw MisuseError("[solve] no start: solve(x0, *parameters)");
    x0 = parts_of(arguments[first++]);
  }
  std::vector<Array> theta;
  for (; first < arguments.size(); ++first) theta.push_back(array_of(arguments[first]));
  const nb::list kept = kept_of(self.kept);
  // A copy: the memory it shares is used again only once it is gone.
  Solution copy =
      without_gil(*self.turns, [&] { return Solution(x0 ? self.prepared.solve(*x0, theta) : self.prepared.solve(theta)); });
  return {std::move(copy), kept};
}

}  // namespace

void bind_prepared(nb::module_& m) {
  nb::class_<PyPrepared>(m, "Prepared", nb::type_slots(slots_of_kept<PyPrepared>()),
                         "A solver prepared for given shapes, made by Solver.prepare.")
      .def("solve", solve_prepared, "arguments"_a, "start"_a = nb::none(),
           nb::sig("def solve(self, *arguments: ArrayOrParts, start: ArrayOrParts | None = None) -> Solution"),
           "As Solver.solve, for the shapes it was prepared for and with the data as they were then.")
      .def("__reduce__",
           cannot_be_pickled<PyPrepared>("a Prepared holds the functions it was traced from and cannot be pickled; a "
                                         "function of a module that makes it can, by its name"),
           nb::sig("def __reduce__(self) -> typing.Any"))
      .def("__repr__", [](const PyPrepared&) { return "<Prepared>"; });
}

void add_prepare(nb::class_<PySolver>& solver) {
  solver.def(
      "prepare", prepare, "arguments"_a, "start"_a = nb::none(), "estimator"_a = nb::none(),
      nb::sig("def prepare(self, *arguments: ArrayOrParts, start: ArrayOrParts | None = None, estimator: Estimator | None = "
              "None) -> Prepared"),
      "The solver for the shapes of these arguments, which are those of solve: traced and planned once. It is the promise "
      "that nothing the traced function closes over changes.");
}

}  // namespace onestep::python
