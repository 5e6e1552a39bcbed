// Python functions as bodies of traced functions.
#include "tracing.h"

#include <algorithm>
#include <cstring>

#include "errors.h"
#include "functions.h"
#include "gil.h"

namespace onestep::python {
namespace {

thread_local Tracing* current_tracing = nullptr;
thread_local Frozen* current_frozen = nullptr;

bool has_same_bytes(const Array& copy, const Array& view) {
  return copy.shape() == view.shape() && std::memcmp(copy.data(), view.data(), copy.values().size_bytes()) == 0;
}

bool contains(const nb::list& list, nb::handle object) {
  return std::any_of(list.begin(), list.end(), [&](nb::handle other) { return other.is(object); });
}

// The library keeps the plans of the last eight graphs that a solver traced (Recipe::Cache), and each may hold solvers of
// its own: where a function makes a new one whenever it is traced, older ones are given back.
void remember(nb::list& kept, const nb::list& inside) {
  constexpr std::size_t most_graphs = 16;
  std::vector<Py_ssize_t> earlier;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const nb::object entry = kept[i];
    if (!nb::isinstance<nb::list>(entry)) continue;
    const nb::list solvers = nb::borrow<nb::list>(entry);
    if (std::all_of(inside.begin(), inside.end(), [&](nb::handle one) { return contains(solvers, one); })) return;
    earlier.push_back(static_cast<Py_ssize_t>(i));
  }
  if (earlier.size() >= most_graphs) PySequence_DelItem(kept.ptr(), earlier.front());
  kept.append(inside);
}

}  // namespace

Tracing::Tracing(std::shared_ptr<const CopiedData>& last, nb::list kept)
    : last_(last), known_(last), kept_(std::move(kept)), outer_(std::exchange(current_tracing, this)) {}

Tracing::~Tracing() {
  current_tracing = outer_;
  last_ = std::make_shared<const CopiedData>(std::move(used_));
  if (inside_.size() > 0) remember(kept_, inside_);
}

Tracing* Tracing::current() { return current_tracing; }

Array Tracing::data(const Buffer& buffer) {
  const Array view = buffer.view();
  if (!view.is_contiguous() || view.size() == 0) return buffer.copy();
  const auto find = [&](const CopiedData& among) -> const Array* {
    for (const CopiedData::Entry& e : among.entries)
      if (e.from == view.data() && has_same_bytes(e.copy, view)) return &e.copy;
    return nullptr;
  };
  if (const Array* used = find(used_)) return *used;
  const Array* known = known_ ? find(*known_) : nullptr;
  used_.entries.push_back({view.data(), known != nullptr ? *known : buffer.copy()});
  return used_.entries.back().copy;
}

void Tracing::keep(nb::handle kept_inside) {
  if (!contains(inside_, kept_inside)) inside_.append(kept_inside);
}

nb::list Tracing::needed() const {
  if (inside_.size() == 0) return kept_;
  nb::list both;
  both.append(kept_);
  both.append(inside_);
  return both;
}

Frozen::Use::Use(Frozen* frozen) : outer_(std::exchange(current_frozen, frozen)) {}
Frozen::Use::~Use() { current_frozen = outer_; }
Frozen* Frozen::current() { return current_frozen; }

std::vector<Expr> Frozen::results(nb::handle function, std::span<const Expr> arguments, const Call& call) {
  std::vector<Shape> shapes;
  for (const Expr& e : arguments) shapes.push_back(e.shape());
  const std::scoped_lock lock(mutex_);
  for (const Entry& e : entries_)
    if (e.function.is(function) && e.shapes == shapes) return e.traced(arguments);
  const std::vector<Input> inputs(shapes.begin(), shapes.end());
  Function traced(inputs, call);
  with_gil([&] { nb::borrow<nb::list>(kept_).append(function); });
  entries_.push_back({function, std::move(shapes), traced});
  return traced(arguments);
}

std::optional<Expr> operand_of(nb::handle object) {
  if (const Expr* expr = nullptr; nb::try_cast<const Expr*>(object, expr, false) && expr != nullptr) return *expr;
  if (is_number(object)) return Expr(number_of(object));
  if (!nb::hasattr(object, "__array__") && !nb::isinstance<nb::list>(object) && !nb::isinstance<nb::tuple>(object))
    return std::nullopt;
  const Buffer buffer(object);
  if (current_tracing == nullptr) return Expr(buffer.copy());
  // The transpose of an array that is used, too, is no other constant: AᵀDA is then seen as what it is.
  if (buffer.is_transposed()) {
    const nb::object rows = nb::handle(object).attr("T");
    return transpose(Expr(current_tracing->data(Buffer(rows))));
  }
  return Expr(current_tracing->data(buffer));
}

Expr expr_of(nb::handle object) {
  if (std::optional<Expr> expr = operand_of(object)) return *std::move(expr);
  throw TracingError("an expression, an array or a number is needed here, not " +
                     (object.is_none() ? std::string("None") : "an object of type " + name_of_type(object)));
}

std::vector<Expr> exprs_of(nb::handle object) {
  std::vector<Expr> all;
  for (const nb::handle part : object) all.push_back(expr_of(part));
  return all;
}

nb::object call_python(nb::handle function, std::span<const Expr> arguments) {
  nb::list all;
  for (const Expr& e : arguments) all.append(nb::cast(e));
  return function(*all);
}

std::size_t arguments_of(nb::handle function) {
  return nb::cast<std::size_t>(nb::module_::import_("onestep._signature").attr("arguments_of")(function));
}

detail::Body body_of(nb::handle function) {
  // What was traced before needs no Python.
  if (const TracedFunction* traced = nullptr;
      nb::try_cast<const TracedFunction*>(function, traced, false) && traced != nullptr)
    return {[f = traced->function](std::span<const Expr> in) { return f(in); }, traced->function.inputs().size()};
  const Frozen::Call call = [function](std::span<const Expr> in) {
    return with_gil([&] {
      const nb::object result = call_python(function, in);
      if (nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result)) return exprs_of(result);
      if (result.is_none()) throw TracingError("the traced function returned None: does it lack a return?");
      return std::vector<Expr>{expr_of(result)};
    });
  };
  return {[function, call](std::span<const Expr> in) {
            Frozen* frozen = Frozen::current();
            return frozen != nullptr ? frozen->results(function, in, call) : call(in);
          },
          arguments_of(function)};
}

}  // namespace onestep::python
