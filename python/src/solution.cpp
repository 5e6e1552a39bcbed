// The class Solution: x, status, derivatives and certificates.
#include "solution.h"

#include <pthread.h>

#include <sstream>

#include "options.h"
#include "records.h"
#include "words.h"

namespace onestep::python {
namespace {

std::atomic<int> forks_so_far{0};
[[maybe_unused]] const int at_fork = pthread_atfork(nullptr, nullptr, [] { ++forks_so_far; });

std::string text_of(const PySolution& self) {
  const Statistics& cost = self.solution.statistics();
  std::ostringstream text;
  text << "<Solution: " << to_string(self.solution.status()) << " in " << cost.iterations << " iterations, ";
  const Parts state = self.solution.state();
  for (std::size_t i = 0; i < state.size(); ++i) text << (i == 0 ? "x of shape " : ", ") << state[i].shape();
  text << ">";
  return text.str();
}

// A derivative or a certificate in a direction, which is read where it lies.
template <auto member> auto along(const PySolution& self, nb::handle direction) {
  const PartsInPlace given(direction);
  return without_gil(*self.turns, [&] { return (self.solution.*member)(given.parts()); });
}

template <auto member> Certificate certified(const PySolution& self, nb::handle direction) {
  return in_python_words(along<member>(self, direction));
}

PySolution even_if_unconverged(const PySolution& self) {
  PySolution copy = self;
  copy.solution = self.solution.even_if_unconverged();
  return copy;
}

}  // namespace

int forks() { return forks_so_far; }

void bind_solution(nb::module_& m) {
  nb::class_<PySolution>(m, "Solution", nb::type_slots(slots_of_kept<PySolution>()),
                         "What a solver converged to, and its derivatives.")
      .def_prop_ro(
          "x", [](const PySolution& s) { return numpy_of(s.solution.x()); },
          nb::sig("def x(self) -> numpy.typing.NDArray[numpy.float64]"),
          "The first part of the state, in memory of its own.")
      .def_prop_ro(
          "state", [](const PySolution& s) { return numpy_tuple(s.solution.state()); },
          nb::sig("def state(self) -> tuple[numpy.typing.NDArray[numpy.float64], ...]"), "All parts of the state.")
      .def_prop_ro(
          "status", [](const PySolution& s) { return s.solution.status(); }, "How the solve ended.")
      .def_prop_ro(
          "about", [](const PySolution& s) { return in_python_words(s.solution.about()); },
          "What the status is about, an array or an iteration for example; empty where there is nothing more to say.")
      .def_prop_ro(
          "message", [](const PySolution& s) { return in_python_words(s.solution.message()); }, "The status in a sentence.")
      .def_prop_ro(
          "statistics", [](const PySolution& s) { return Statistics(s.solution.statistics()); }, "What the solve cost.")
      .def_prop_ro(
          "report", [](const PySolution& s) { return DerivativeReport(s.solution.report()); },
          "How the last derivative was computed.")
      .def_prop_ro(
          "proof", [](const PySolution& s) { return numpy_tuple(s.solution.proof()); },
          nb::sig("def proof(self) -> tuple[numpy.typing.NDArray[numpy.float64], ...]"),
          "Of an infeasible quadratic program: multipliers that contradict its constraints; of an unbounded one: a "
          "direction.")
      .def(
          "vjp", [](const PySolution& s, nb::handle c) { return numpy_parts(along<&Solution::vjp>(s, c)); }, "c"_a,
          nb::sig("def vjp(self, c: ArrayOrParts) -> typing.Any"),
          "(dx/dtheta)^T c: an array, or a tuple of one for each parameter where there are several. c is a cotangent of x, "
          "or a tuple of one for each part of the state.")
      .def(
          "jvp", [](const PySolution& s, nb::handle v) { return numpy_parts(along<&Solution::jvp>(s, v)); }, "v"_a,
          nb::sig("def jvp(self, v: ArrayOrParts) -> typing.Any"),
          "(dx/dtheta) v: an array, or a tuple of one for each part of the state where there are several. v is a tuple "
          "where there are several parameters.")
      .def(
          "jacobian",
          [](const PySolution& s) {
            return numpy_parts(without_gil(*s.turns, [&] { return s.solution.jacobian(check_signals); }));
          },
          nb::sig("def jacobian(self) -> typing.Any"),
          "dx/dtheta: a matrix, or a tuple of one for each parameter, with a row for each entry of the state: those of x, "
          "then those of the other parts, such as the multipliers of a quadratic program.")
      .def("certificate", certified<&Solution::certificate>, "c"_a,
           nb::sig("def certificate(self, c: ArrayOrParts) -> Certificate"), "How wrong vjp(c) can be.")
      .def("certificate_jvp", certified<&Solution::certificate_jvp>, "v"_a,
           nb::sig("def certificate_jvp(self, v: ArrayOrParts) -> Certificate"), "How wrong jvp(v) can be.")
      .def("even_if_unconverged", even_if_unconverged,
           "A copy whose derivatives are returned even if the solve did not converge or the linear system is singular.")
      .def("__reduce__",
           cannot_be_pickled<PySolution>(
               "a Solution holds the functions it was traced from and cannot be pickled; its numbers can: s.x, s.status, "
               "s.statistics, s.jacobian(), s.certificate(c)"),
           nb::sig("def __reduce__(self) -> typing.Any"))
      .def("__repr__", text_of)
      .def(
          "_repr_html_", [](nb::handle self) { return html_of("of_solution", self); },
          nb::sig("def _repr_html_(self) -> str"));
}

}  // namespace onestep::python
