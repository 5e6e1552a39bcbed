// Certificates as text and as JSON. Printed bounds are rounded up.
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "estimate/certify.h"

namespace onestep {

std::string detail::rounded_up(double x) {
  std::string text = fmt::format("{:.1e}", x);
  for (double more = x; std::isfinite(more) && std::strtod(text.c_str(), nullptr) < x;) {
    more = std::max(1.02 * more, std::nextafter(more, std::numeric_limits<double>::infinity()));
    text = fmt::format("{:.1e}", more);
  }
  return text;
}

namespace {

using detail::rounded_up;

const char* to_text(Certificate::Basis basis) {
  switch (basis) {
    case Certificate::Basis::proven: return "proven";
    case Certificate::Basis::observed: return "observed";
    case Certificate::Basis::refused: break;
  }
  return "refused";
}
const char* to_text(Certificate::Term term) {
  switch (term) {
    case Certificate::Term::left_out: return "left_out";
    case Certificate::Term::distance: return "distance";
    case Certificate::Term::rounding: break;
  }
  return "rounding";
}
const char* in_words(Certificate::Term term) {
  switch (term) {
    case Certificate::Term::left_out: return "what the estimator leaves out";
    case Certificate::Term::distance: return "the distance to the solution";
    case Certificate::Term::rounding: break;
  }
  return "rounding";
}
std::string json_number(double x) { return std::isfinite(x) ? fmt::format("{:.17g}", x) : "null"; }

}  // namespace

std::ostream& operator<<(std::ostream& out, const Certificate& c) {
  if (c.basis == Certificate::Basis::refused) {
    fmt::print(out, "no bound: {}{}{}", c.reason, c.advice.empty() ? "" : "; ", c.advice);
    return out;
  }
  fmt::print(out, "error <= {} ({}), {} of the derivative", rounded_up(c.bound), to_text(c.basis), rounded_up(c.relative));
  if (c.bound > 0) fmt::print(out, "; mostly {}", in_words(c.dominant));
  if (std::isfinite(c.estimate)) fmt::print(out, "; most likely {:.1e}", c.estimate);
  return out;
}

std::string Certificate::json() const {
  const auto quoted = [](const std::string& text) {
    std::string escaped;
    for (const char ch : text) {
      if (ch == '"' || ch == '\\') escaped += '\\';
      escaped += ch;
    }
    return escaped;
  };
  return fmt::format(
      R"({{"basis": "{}", "bound": {}, "relative": {}, "estimate": {}, "value": {}, "dominant": "{}", "left_out": {}, "from_distance": {}, "rounding": {}, "rho": {}, "distance": {}, "L_J": {}, "norm_B": {}, "products": {}, "reason": "{}", "advice": "{}"}})",
      to_text(basis), json_number(bound), json_number(relative), json_number(estimate), json_number(value),
      to_text(dominant), json_number(left_out), json_number(from_distance), json_number(rounding), json_number(rho),
      json_number(distance), json_number(L_J), json_number(norm_B), products, quoted(reason), quoted(advice));
}

}  // namespace onestep
