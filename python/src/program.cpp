// Quadratic programs: traced ones, and those that are given as arrays.
#include "errors.h"
#include "functions.h"
#include "records.h"
#include "solver.h"

namespace onestep::python {
namespace {

constexpr const char* part_names = "Q, q, A, b, G, l, u, lo and hi";

// The part of a program with this name; throws MisuseError where there is none.
template <class Program> auto& part_of(Program& program, const std::string& name) {
  auto* part = name == "Q"    ? &program.Q
               : name == "q"  ? &program.q
               : name == "A"  ? &program.A
               : name == "b"  ? &program.b
               : name == "G"  ? &program.G
               : name == "l"  ? &program.l
               : name == "u"  ? &program.u
               : name == "lo" ? &program.lo
               : name == "hi" ? &program.hi
                              : nullptr;
  if (part == nullptr)
    throw MisuseError("[quadratic_program] a program has no part '" + name + "'; there are " + part_names);
  return *part;
}

// Sets each part that a dict, or the keyword arguments of a call, names.
template <class Program, class Value> void set_parts(Program& program, const nb::dict& named, const Value& value_of) {
  for (const auto [key, value] : named) {
    const std::string name = nb::cast<std::string>(nb::str(key));
    if (value.is_none()) continue;
    part_of(program, name) = value_of(value);
  }
}

TracedProgram program_with_gil(nb::handle function, std::span<const Expr> in) {
  const nb::object result = call_python(function, in);
  if (!nb::isinstance<nb::dict>(result))
    throw TracingError(std::string("the function of quadratic_program returns a dict of ") + part_names);
  TracedProgram program;
  set_parts(program, nb::borrow<nb::dict>(result), expr_of);
  return program;
}

TracedProgram program_of(nb::handle function, std::span<const Expr> in) {
  return with_gil([&] { return program_with_gil(function, in); });
}

detail::ProgramBody program_body_of(nb::handle function) {
  return {[function](std::span<const Expr> in) {
            Frozen* frozen = Frozen::current();
            if (frozen == nullptr) return program_of(function, in);
            const std::vector<Expr> all = frozen->results(function, in, [function](std::span<const Expr> arguments) {
              const TracedProgram p = program_of(function, arguments);
              return std::vector<Expr>{p.Q, p.q, p.A, p.b, p.G, p.l, p.u, p.lo, p.hi};
            });
            return TracedProgram{all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7], all[8]};
          },
          arguments_of(function)};
}

PySolver quadratic_program(nb::handle program, const nb::kwargs& named) {
  nb::list kept;
  kept.append(program);
  PySolver made = make_solver("quadratic_program", kept, named, quadratic_program_options(), [&](const SolveOptions& o) {
    return program.is_none() ? onestep::quadratic_program(o) : detail::make_quadratic_program(program_body_of(program), o);
  });
  made.has_start = true;  // it needs none
  return made;
}

// Of a function that was traced before, whose results are these parts.
PySolver program_of_traced(const TracedFunction& traced, const std::vector<std::string>& parts, const nb::kwargs& named) {
  const detail::ProgramBody body{[f = traced.function, parts](std::span<const Expr> in) {
                                   const std::vector<Expr> results = f(in);
                                   TracedProgram program;
                                   for (std::size_t i = 0; i < parts.size(); ++i) part_of(program, parts[i]) = results[i];
                                   return program;
                                 },
                                 traced.function.inputs().size()};
  if (parts.size() != traced.function.outputs().size())
    throw MisuseError("[quadratic_program] " + std::to_string(parts.size()) + " names for " +
                      std::to_string(traced.function.outputs().size()) + " parts");
  nb::list kept;
  kept.append(traced.kept);
  PySolver made = make_solver("quadratic_program", kept, named, quadratic_program_options(),
                              [&](const SolveOptions& o) { return detail::make_quadratic_program(body, o); });
  made.has_start = true;
  return made;
}

nb::dict dict_of(const QuadraticProgram& p) {
  nb::dict parts;
  parts["Q"] = numpy_of(p.Q);
  parts["q"] = numpy_of(p.q);
  parts["A"] = numpy_of(p.A);
  parts["b"] = numpy_of(p.b);
  parts["G"] = numpy_of(p.G);
  parts["l"] = numpy_of(p.l);
  parts["u"] = numpy_of(p.u);
  parts["lo"] = numpy_of(p.lo);
  parts["hi"] = numpy_of(p.hi);
  return parts;
}

struct PyProgramSolution {
  ProgramSolution solution;
  bool has_derivatives = true;  ///< not after it was pickled
  std::shared_ptr<Turns> turns = std::make_shared<Turns>();
};

using OfProgramSolution =
    Pickling<&ProgramSolution::status, &ProgramSolution::x, &ProgramSolution::y, &ProgramSolution::z,
             &ProgramSolution::bound_multipliers, &ProgramSolution::objective, &ProgramSolution::iterations,
             &ProgramSolution::factorisations, &ProgramSolution::seconds, &ProgramSolution::about>;

const ProgramSolution& to_differentiate(const PyProgramSolution& s) {
  if (s.has_derivatives) return s.solution;
  throw MisuseError("a ProgramSolution that was copied or pickled is its numbers: solve again for its derivatives");
}

PyProgramSolution solve_qp(double tolerance, int max_iterations, double time_limit, double constant,
                           const nb::kwargs& named) {
  QuadraticProgram program;
  program.constant = constant;
  set_parts(program, nb::borrow<nb::dict>(named), array_of);
  // An iteration is short; signals are looked at as in any other solve.
  const ProgramOptions options{.tolerance = tolerance,
                               .iteration_limit = max_iterations,
                               .time_limit = time_limit,
                               .callback = [](const ProgramIteration&) {
                                 check_signals();
                                 return false;
                               }};
  const WithoutGil no_gil;
  return {.solution = solve(program, options)};
}

nb::object array_of_indices(const std::vector<std::size_t>& indices) { return nb::cast(indices); }

nb::dict degeneracy(const PyProgramSolution& s) {
  const ProgramDegeneracy d = without_gil(*s.turns, [&] { return to_differentiate(s).degeneracy(); });
  nb::dict all;
  all["undecided"] = array_of_indices(d.undecided);
  all["dependent"] = array_of_indices(d.dependent);
  all["not_unique"] = array_of_indices(d.not_unique);
  all["residual"] = d.residual;
  all["is_solved"] = d.is_solved;
  all["none"] = d.none();
  return all;
}

// A member of a ProgramSolution that is an array.
template <Array ProgramSolution::*member> nb::object array_at(const PyProgramSolution& s) {
  return numpy_of(s.solution.*member);
}

}  // namespace

void bind_program(nb::module_& m) {
  m.def(
      "quadratic_program", quadratic_program, "program"_a = nb::none(), "options"_a,
      nb::sig("def quadratic_program(program: collections.abc.Callable[..., typing.Any] | None = None, *, tolerance: float "
              "= 1e-9, " ONESTEP_PYTHON_OPTIONS ") -> Solver"),
      "min x'Qx/2 + q'x subject to Ax = b, l <= Gx <= u, lo <= x <= hi, whose data are a dict that a traced function of the "
      "parameters returns; without a function the parameters are Q, q, A, b, G, l, u, lo, hi. The state is x and the "
      "multipliers of equalities, rows and bounds. It needs no start.");

  m.def("program_of_traced", program_of_traced, "function"_a, "parts"_a, "options"_a,
        nb::sig("def program_of_traced(function: Function, parts: collections.abc.Sequence[str], *, tolerance: float = "
                "1e-9, " ONESTEP_PYTHON_OPTIONS ") -> Solver"),
        "quadratic_program of a traced function whose results are the parts with these names.");

#define ONESTEP_PYTHON_ARRAY(name, about)              \
  def_prop_ro(#name, array_at<&ProgramSolution::name>, \
              nb::sig("def " #name "(self) -> numpy.typing.NDArray[numpy.float64]"), about)
  nb::class_<PyProgramSolution>(m, "ProgramSolution", "What the interior point method found for a program given as arrays.")
      .ONESTEP_PYTHON_ARRAY(x, "The minimiser.")
      .ONESTEP_PYTHON_ARRAY(y, "Multipliers of the equalities.")
      .ONESTEP_PYTHON_ARRAY(z, "Multipliers of the rows of G.")
      .ONESTEP_PYTHON_ARRAY(bound_multipliers, "Multipliers of the bounds.")
      .def_prop_ro(
          "status", [](const PyProgramSolution& s) { return s.solution.status; }, "How the solve ended.")
      .def_prop_ro(
          "objective", [](const PyProgramSolution& s) { return s.solution.objective; }, "At x.")
      .def_prop_ro(
          "iterations", [](const PyProgramSolution& s) { return s.solution.iterations; }, "Of the interior point method.")
      .def_prop_ro(
          "about", [](const PyProgramSolution& s) { return s.solution.about; },
          "The part of the data that the status is about.")
      .def(
          "vjp",
          [](const PyProgramSolution& s, nb::handle c) {
            const PartsInPlace given(c);
            return dict_of(without_gil(*s.turns, [&] { return to_differentiate(s).vjp(given.parts()); }));
          },
          "c"_a, nb::sig("def vjp(self, c: ArrayOrParts) -> dict[str, numpy.typing.NDArray[numpy.float64]]"),
          "Cotangents of all parts of the data for a cotangent of x.")
      .def(
          "gradient_of_objective",
          [](const PyProgramSolution& s) { return dict_of(to_differentiate(s).gradient_of_objective()); },
          nb::sig("def gradient_of_objective(self) -> dict[str, numpy.typing.NDArray[numpy.float64]]"),
          "The derivative of the optimal value with respect to each part of the data.")
      .def("degeneracy", degeneracy, nb::sig("def degeneracy(self) -> dict[str, typing.Any]"),
           "Where the solution has no derivative: constraints that are undecided or dependent, variables that are not "
           "unique.")
      .def("__getstate__", [](const PyProgramSolution& s) { return OfProgramSolution::state(s.solution); })
      .def("__setstate__",
           [](PyProgramSolution& self, const nb::tuple& values) {
             auto* made = new (&self) PyProgramSolution{.solution = {}, .has_derivatives = false};
             OfProgramSolution::restore(made->solution, values);
           })
      .def("__repr__", [](const PyProgramSolution& s) {
        return std::string("<ProgramSolution: ") + to_string(s.solution.status) + " in " +
               std::to_string(s.solution.iterations) + " iterations, objective " +
               nb::cast<std::string>(nb::repr(nb::cast(s.solution.objective))) + ">";
      });
#undef ONESTEP_PYTHON_ARRAY

  const ProgramOptions defaults;
  m.def(
      "solve_qp", solve_qp, "tolerance"_a = defaults.tolerance, "max_iterations"_a = defaults.iteration_limit,
      "time_limit"_a = defaults.time_limit, "constant"_a = 0.0, "data"_a,
      nb::sig("def solve_qp(*, Q: ArrayOrParts | None = None, q: ArrayOrParts | None = None, A: ArrayOrParts | None = None, "
              "b: ArrayOrParts | None = None, G: ArrayOrParts | None = None, l: ArrayOrParts | None = None, u: ArrayOrParts "
              "| None = None, lo: ArrayOrParts | None = None, hi: ArrayOrParts | None = None, tolerance: float = 1e-9, "
              "max_iterations: int = 200, time_limit: float = ..., constant: float = 0.0) -> ProgramSolution"),
      "Solves a quadratic program given as arrays. What it does not have is left out; a number stands for a vector of it; "
      "the constant is added to the objective.");
}

}  // namespace onestep::python
