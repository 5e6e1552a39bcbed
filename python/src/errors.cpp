// Exceptions of the library as those of python/onestep/_errors.py, with their fields.
#include "errors.h"

#include "words.h"

namespace onestep::python {
namespace {

nb::handle classes;  // the module onestep._errors, never given back

template <class... Fields> void raise(const char* name, const Fields&... fields) {
  const nb::object type = classes.attr(name);
  const nb::object error = type(fields...);
  PyErr_SetObject(type.ptr(), error.ptr());
}

const char* word(FileError::Remedy remedy) {
  static constexpr const char* words[] = {"none",           "memory_limit",   "drop",         "target",
                                          "drop_or_target", "header",         "no_header",    "separator",
                                          "decimal",        "missing_target", "missing_value"};
  return words[static_cast<std::size_t>(remedy)];
}

std::string words_of(const Error& e) { return in_python_words(e.what()); }

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const TracingError& e) { raise("TracingError", words_of(e)); } catch (const MisuseError& e) {
    raise("MisuseError", words_of(e));
  } catch (const NotConvergedError& e) {
    raise("NotConvergedError", words_of(e), e.status, e.iterations);
  } catch (const NoDerivativeError& e) {
    raise("NoDerivativeError", words_of(e), in_python_words(e.reason), e.status, e.residual);
  } catch (const FileError& e) {
    raise(dynamic_cast<const WriteError*>(&e) != nullptr ? "WriteError" : "FileError", e.what(), e.file, e.line, e.field,
          e.problem, word(e.remedy));
  } catch (const Error& e) { raise("Error", words_of(e)); }
}

}  // namespace

void bind_errors(nb::module_&) {
  classes = nb::object(nb::module_::import_("onestep._errors")).release();
  nb::register_exception_translator(translate);
}

}  // namespace onestep::python
