// Traced functions that can be evaluated, for looking at what was traced and for trying it out.
#include "functions.h"

namespace onestep::python {
namespace {

Input input_of(nb::handle spec) {
  if (!nb::isinstance<nb::tuple>(spec)) return Buffer(spec).shape();
  const auto dims = nb::cast<std::vector<std::int64_t>>(spec);
  if (dims.size() > 2) throw MisuseError("[traced] a shape has at most two axes, not " + std::to_string(dims.size()));
  return dims.empty() ? Shape{} : dims.size() == 1 ? Shape{dims[0]} : Shape{dims[0], dims[1]};
}

nb::object run(const TracedFunction& self, const nb::args& arguments) {
  const nb::list kept = kept_of(self.kept);
  std::vector<PartsInPlace> given;
  std::vector<Array> inputs;
  for (const nb::handle a : arguments) {
    given.emplace_back(a);
    inputs.push_back(given.back().parts());
  }
  std::vector<Array> results;
  {
    const WithoutGil no_gil;
    results = evaluate(self.function, inputs);
  }
  return numpy_parts(results);
}

}  // namespace

TracedFunction traced_python(nb::handle function, const nb::args& specs) {
  std::vector<Input> inputs;
  for (const nb::handle spec : specs) inputs.push_back(is_number(spec) ? Input(Shape{}) : input_of(spec));
  const detail::Body body = body_of(function);
  if (body.arguments != inputs.size())
    throw MisuseError("[traced] the function takes " + std::to_string(body.arguments) + " arguments, " +
                      std::to_string(inputs.size()) + " shapes were given");
  std::shared_ptr<const CopiedData> none;
  nb::list kept;
  const Tracing tracing(none, kept);
  Function made = [&] {
    const WithoutGil no_gil;
    return Function(inputs, body.call);
  }();
  return {std::move(made), tracing.needed()};
}

void bind_functions(nb::module_& m) {
  nb::class_<TracedFunction>(m, "Function", nb::type_slots(slots_of_kept<TracedFunction>()),
                             "A traced function: call it with arrays for its values.")
      .def("__call__", run, nb::sig("def __call__(self, *arguments: numpy.typing.ArrayLike) -> typing.Any"),
           "The value: an array, or a tuple of them where the function returned several.")
      .def_prop_ro(
          "text", [](const TracedFunction& f) { return f.function.text(); }, "What was traced, a line for each node.")
      .def_prop_ro(
          "flops", [](const TracedFunction& f) { return f.function.flops(); }, "Multiply-adds of one evaluation.")
      .def("__repr__", [](const TracedFunction& f) {
        return "<Function of " + std::to_string(f.function.inputs().size()) + " arguments, " +
               std::to_string(static_cast<long long>(f.function.flops())) + " flops>";
      });
  m.def("traced", traced_python, "function"_a, "shapes"_a,
        nb::sig("def traced(function: collections.abc.Callable[..., typing.Any], *shapes: tuple[int, ...] | "
                "numpy.typing.ArrayLike) -> Function"),
        "Calls the function once with expressions of these shapes (tuples, or arrays for theirs) and keeps what it did.");
}

}  // namespace onestep::python
