// What layers of other frameworks are made of: problems of one shape on plain memory, and the calls that compiled programs
// make. In Python these are not public.
#include <cstring>

#include "arrays.h"
#include "calls.h"
#include "foreign.h"
#include "functions.h"
#include "jax_ffi.h"
#include "solver.h"

namespace onestep::python {
namespace {

using Dims = std::vector<std::int64_t>;

struct PyProblems {
  std::shared_ptr<Problems> problems;
  std::shared_ptr<Frozen> frozen;
  nb::object kept;
};

// A call, with the Python objects that it may call.
struct PyCall {
  std::shared_ptr<Call> call;
  nb::object kept;
};

std::vector<Shape> shapes_of(const std::vector<Dims>& all) {
  std::vector<Shape> shapes;
  for (const Dims& dims : all) {
    if (dims.size() > 2) throw MisuseError("an array has at most two axes here, not " + std::to_string(dims.size()));
    shapes.push_back(dims.empty() ? Shape{} : dims.size() == 1 ? Shape{dims[0]} : Shape{dims[0], dims[1]});
  }
  return shapes;
}

OnError on_error_of(const std::string& word) {
  if (word == "raise") return OnError::raise;
  if (word == "nan") return OnError::nan;
  if (word == "keep") return OnError::keep;
  throw MisuseError("on_error is 'raise', 'nan' or 'keep', not '" + word + "'");
}

PyProblems problems_of(const std::string& name, PySolver& solver, nb::handle estimator, const std::string& on_error,
                       const std::vector<Dims>& start, const std::vector<Dims>& theta, const std::vector<Dims>& state) {
  nb::list kept;
  kept.append(kept_of(solver.kept));
  kept.append(nb::borrow(estimator));
  const Estimator how = estimator_of(estimator);
  const OnError what = on_error_of(on_error);
  const Problems::Shapes shapes{shapes_of(start), shapes_of(theta), shapes_of(state)};
  const Solver its = solver.solver;
  // What the solver's functions close over is read now, and never again.
  const auto frozen = std::make_shared<Frozen>(kept);
  const Tracing tracing(solver.data, kept);
  std::shared_ptr<Problems> made = [&] {
    const WithoutGil no_gil;
    return std::make_shared<Problems>(name, its, how, what, shapes,
                                      [frozen] { return std::make_shared<Frozen::Use>(frozen.get()); });
  }();
  kept.append(tracing.needed());
  return {std::move(made), frozen, kept};
}

// A numbers' buffer as the call wants it: doubles, row by row.
class Operand {
 public:
  Operand(nb::handle array, const Dims& dims) {
    if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) throw nb::python_error();
    std::int64_t entries = 1;
    for (const std::int64_t n : dims) entries *= n;
    if (std::strcmp(view_.format, "d") != 0 || view_.len != static_cast<Py_ssize_t>(sizeof(double)) * entries) {
      PyBuffer_Release(&view_);
      throw MisuseError("an operand of a call has another shape or type");
    }
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  ~Operand() { PyBuffer_Release(&view_); }
  const double* data() const { return static_cast<const double*>(view_.buf); }

 private:
  Py_buffer view_{};
};

nb::tuple run(const PyCall& self, const nb::args& operands) {
  Call& call = *self.call;
  if (operands.size() != call.inputs().size())
    throw MisuseError("a call of " + std::to_string(call.inputs().size()) + " operands was given " +
                      std::to_string(operands.size()));
  std::vector<std::unique_ptr<Operand>> held;
  std::vector<const double*> inputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    held.push_back(std::make_unique<Operand>(operands[i], call.inputs()[i]));
    inputs.push_back(held.back()->data());
  }
  nb::list results;
  std::vector<double*> outputs;
  for (const Dims& dims : call.outputs()) {
    std::span<double> memory;
    results.append(numpy_empty(dims, &memory));
    outputs.push_back(memory.data());
  }
  std::vector<std::int32_t> statuses(call.has_statuses() ? call.count() : 0);
  {
    const WithoutGil no_gil;
    call.run(inputs, outputs, statuses.data());
  }
  if (call.has_statuses()) results.append(nb::cast(statuses));
  return nb::tuple(results);
}

// Ctrl-C is given to the interpreter again when this is gone: no statement of Python can do that where none is to run before
// whoever catches the exception that has it has dropped that.
struct InterruptWhenGone {
  InterruptWhenGone() = default;
  InterruptWhenGone(const InterruptWhenGone&) = delete;
  InterruptWhenGone& operator=(const InterruptWhenGone&) = delete;
  ~InterruptWhenGone() { PyErr_SetInterrupt(); }
};

// Whether a foreign step of the solver is marked as one that runs JAX.
bool runs_jax(nb::handle kept) {
  if (nb::isinstance<nb::list>(kept)) {
    for (const nb::handle one : nb::borrow<nb::list>(kept))
      if (runs_jax(one)) return true;
    return false;
  }
  const PyForeignStep* step = nullptr;
  return nb::try_cast<const PyForeignStep*>(kept, step, false) && step != nullptr && nb::hasattr(step->apply, "runs_jax");
}

Layout layout_of(const std::vector<bool>& batched, std::size_t count) { return {batched, count}; }

PyCall evaluation(const TracedFunction& traced, std::size_t first, std::size_t directed, const std::vector<bool>& batched,
                  std::size_t count, std::size_t directions, const std::string& name, bool raises) {
  auto evaluated = std::make_shared<Evaluation>(name, traced.function, first, directed, raises);
  return {Call::evaluate(std::move(evaluated), layout_of(batched, count), directions), traced.kept};
}

}  // namespace

void bind_layers(nb::module_& m) {
  nb::class_<PyCall>(m, "CompiledCall", nb::type_slots(slots_of_kept<PyCall>()),
                     "A computation that compiled programs find by its number.")
      .def_prop_ro(
          "number", [](const PyCall& c) { return c.call->number(); }, "What compiled programs know it by.")
      .def_prop_ro(
          "outputs", [](const PyCall& c) { return c.call->outputs(); }, "The shapes of its results.")
      .def("__call__", run,
           nb::sig("def __call__(self, *operands: numpy.typing.NDArray[numpy.float64]) -> tuple[typing.Any, ...]"),
           "Runs it on arrays of doubles that lie row by row.");
  nb::class_<PyProblems> problems(m, "PreparedProblems", nb::type_slots(slots_of_kept<PyProblems>()),
                                  "A solver for parameters of given shapes.");
  problems
      .def(
          "solve",
          [](const PyProblems& p, const std::vector<bool>& batched, std::size_t count) {
            return PyCall{Call::solve(p.problems, layout_of(batched, count)), p.kept};
          },
          "batched"_a, "count"_a, "(start, theta) -> the parts of the state and the statuses.")
      .def(
          "vjp",
          [](const PyProblems& p, const std::vector<bool>& batched, std::size_t count, std::size_t directions,
             const std::vector<bool>& given, const std::vector<bool>& apart) {
            return PyCall{Call::vjp(p.problems, layout_of(batched, count), {directions, given, apart}), p.kept};
          },
          "batched"_a, "count"_a, "directions"_a, "given"_a, "apart"_a,
          "(c, start, theta, state) -> (dx/dtheta)^T c for the parameters that are given.")
      .def(
          "jvp",
          [](const PyProblems& p, const std::vector<bool>& batched, std::size_t count, std::size_t directions,
             const std::vector<bool>& given, const std::vector<bool>& apart) {
            return PyCall{Call::jvp(p.problems, layout_of(batched, count), {directions, given, apart}), p.kept};
          },
          "batched"_a, "count"_a, "directions"_a, "given"_a, "apart"_a,
          "(v, start, theta, state) -> (dx/dtheta) v, for tangents of the parameters that are given.");
  problems.def(
      "traced",
      [](PyProblems& p, nb::handle function, const nb::args& shapes) {
        const Frozen::Use use(p.frozen.get());
        return traced_python(function, shapes);
      },
      "function"_a, "shapes"_a,
      nb::sig("def traced(self, function: collections.abc.Callable[..., typing.Any], *shapes: tuple[int, ...]) -> Function"),
      "onestep.traced of a function that has the solver inside, whose functions are what they were.");
  m.def("prepared_problems", problems_of, "name"_a, "solver"_a, "estimator"_a.none(), "on_error"_a, "start"_a, "theta"_a,
        "state"_a, "A solver for parameters of given shapes, ready for calls.");
  m.def("evaluation_call", evaluation, "function"_a, "first"_a, "directed"_a, "batched"_a, "count"_a, "directions"_a,
        "name"_a, "raises"_a,
        "A traced function evaluated for each direction of each problem. It is linear in the `first` of the directed "
        "arguments, and in the others.");
  m.def(
      "runs_jax", [](const PySolver& solver) { return runs_jax(solver.kept); }, "solver"_a,
      "Whether the solver calls functions of JAX while it solves.");
  m.def(
      "xla_handler",
      []() -> nb::object {
        void* handler = xla_handler();
        return handler == nullptr ? nb::none() : nb::object(nb::capsule(handler));
      },
      nb::sig("def xla_handler() -> typing.Any"), "The handler of calls for XLA; None where it was not built.");
  m.attr("xla_version") = xla_version();
  nb::class_<InterruptWhenGone>(m, "InterruptWhenGone", "Gives Ctrl-C to the interpreter again when it is gone.")
      .def(nb::init<>());
}

}  // namespace onestep::python
