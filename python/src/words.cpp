// Messages of the library, which name things as C++ does, in the names of Python.
#include "words.h"

#include <regex>
#include <utility>

namespace onestep::python {
namespace {

// What is more than another way to write the same name; the first that fits is taken.
const std::pair<const char*, const char*> phrases[] = {
    {"Solution::proof()", "the solution's proof"},
    {"(braces list several: a vector is Array{…})",
     "(a tuple has an array for each part of the state; a list is one array)"},
    {"Solver::with, or no estimator", "with_options(estimator=...), or no estimator"},
    {"Solver::with", "with_options(estimator=...)"},
    {"Solver::equation, as a lambda of expressions", "Solver.equation"},
    {"the lambda takes", "the function takes"},
    {"the start is a lambda of", "the start is a function of"},
    {"{.mode = Unrolled::reverse}", "(mode=Unrolled.Mode.reverse)"},
    {"{.mode = Unrolled::forward}", "(mode=Unrolled.Mode.forward)"},
    {"SolveOptions::", ""},
    {"Constants::rho", "rho of knowing()"},
    {"KStep::K", "K of KStep"},
};

void replace_all(std::string& text, const std::string& from, const char* to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos;) text.replace(at, from.size(), to);
}

}  // namespace

std::string in_python_words(std::string text) {
  for (const auto& [from, to] : phrases) replace_all(text, from, to);
  if (text.find("::") != std::string::npos)
    text = std::regex_replace(text, std::regex("([A-Z]\\w*)::([A-Za-z]\\w*)"), "$1.$2");
  if (text.find('{') != std::string::npos)
    text = std::regex_replace(text, std::regex("\\b([A-Z]\\w*)\\{(\\w*)\\}"), "$1($2)");
  return text;
}

Certificate in_python_words(Certificate certificate) {
  certificate.reason = in_python_words(std::move(certificate.reason));
  certificate.advice = in_python_words(std::move(certificate.advice));
  return certificate;
}

}  // namespace onestep::python
