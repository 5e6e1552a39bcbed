// The handler of XLA's foreign function interface: it has the number of a call as its attribute, and runs the call on the
// buffers of the compiled program. The GIL is not held.
#include "jax_ffi.h"

#include <xla/ffi/api/ffi.h>

#include "calls.h"
#include "common.h"
#include "gil.h"
#include "words.h"

namespace onestep::python {
namespace {

namespace ffi = xla::ffi;

std::size_t entries_of(const Call::Dims& dims) {
  std::size_t entries = 1;
  for (const std::int64_t n : dims) entries *= static_cast<std::size_t>(n);
  return entries;
}

bool is_of(const ffi::AnyBuffer& buffer, const Call::Dims& dims) {
  return buffer.element_type() == ffi::DataType::F64 && buffer.element_count() == entries_of(dims);
}

ffi::Error refusal(const std::string& what) { return {ffi::ErrorCode::kInvalidArgument, "[onestep.jax] " + what}; }

// Of Python, from a callback or a foreign step. A Ctrl-C that a solve has noticed is given to the interpreter again, once no
// more of Python runs here, which would take it.
std::string text_of(nb::python_error& error) {
  return with_gil([&] {
    std::string text = error.what();
    if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
    return text;
  });
}

ffi::Error run(Call& call, ffi::RemainingArgs& given, ffi::RemainingRets& wanted) {
  std::vector<const double*> inputs;
  std::vector<double*> outputs;
  std::int32_t* statuses = nullptr;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto buffer = given.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value() || !is_of(*buffer, call.inputs()[i])) return refusal("an operand has another shape or type");
    inputs.push_back(static_cast<const double*>(buffer->untyped_data()));
  }
  for (std::size_t i = 0; i < call.outputs().size(); ++i) {
    auto buffer = wanted.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value() || !is_of(**buffer, call.outputs()[i])) return refusal("a result has another shape or type");
    outputs.push_back(static_cast<double*>((*buffer)->untyped_data()));
  }
  if (call.has_statuses()) {
    auto buffer = wanted.get<ffi::AnyBuffer>(call.outputs().size());
    if (!buffer.has_value() || (*buffer)->element_type() != ffi::DataType::S32 || (*buffer)->element_count() != call.count())
      return refusal("the statuses have another shape or type");
    statuses = static_cast<std::int32_t*>((*buffer)->untyped_data());
  }
  call.run(inputs, outputs, statuses);
  return ffi::Error::Success();
}

ffi::Error handle(std::int64_t number, ffi::RemainingArgs given, ffi::RemainingRets wanted) {
  const std::shared_ptr<Call> call = Call::of(number);
  if (!call) return refusal("a compiled program uses a solver of another process, or one that is gone: compile it again");
  if (given.size() != call->inputs().size() || wanted.size() != call->outputs().size() + (call->has_statuses() ? 1 : 0))
    return refusal("a compiled program has another number of operands than its solver");
  SignalClock::restart();
  try {
    return run(*call, given, wanted);
  } catch (const NotConvergedError& e) {
    return {ffi::ErrorCode::kInternal, std::string("onestep.NotConvergedError: ") + in_python_words(e.what())};
  } catch (const NoDerivativeError& e) {
    return {ffi::ErrorCode::kInternal, std::string("onestep.NoDerivativeError: ") + in_python_words(e.what())};
  } catch (const Error& e) {
    return {ffi::ErrorCode::kInvalidArgument, std::string("onestep.MisuseError: ") + in_python_words(e.what())};
  } catch (nb::python_error& e) { return {ffi::ErrorCode::kInternal, text_of(e)}; } catch (const std::exception& e) {
    return {ffi::ErrorCode::kInternal, e.what()};
  }
}

XLA_FFI_DEFINE_HANDLER(handler, handle, ffi::Ffi::Bind().Attr<std::int64_t>("number").RemainingArgs().RemainingRets());

}  // namespace

void* xla_handler() { return reinterpret_cast<void*>(handler); }

#define ONESTEP_TEXT(a) #a
#define ONESTEP_VERSION_TEXT(major, minor) ONESTEP_TEXT(major) "." ONESTEP_TEXT(minor)
const char* xla_version() { return ONESTEP_VERSION_TEXT(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); }

}  // namespace onestep::python
