// How far the derivative of a program can be from that of its solution, and why there may be none.
#include "qp/point.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace onestep::detail {

template <class Derivative> void QpPoint::look_for_kinks(ErrorTerms& terms, double size, const Derivative& derivative) {
  constexpr double visible = 0.1;
  const std::vector<double> here = derivative();
  double most = 0;
  const bool goes_on = data_.visit_corners([&] {
    std::vector<double> there = derivative();
    for (std::size_t i = 0; i < there.size(); ++i) there[i] -= here[i];
    const double change = norm(there);
    most = std::isnan(most) || change <= most ? most : change;
  });
  terms.from_distance += most;
  if (!goes_on)
    terms.reason = "the data of the program jump at these parameters, or within rounding of them";
  else if (!(most <= visible * size))
    terms.reason = "the data of the program have a kink at these parameters, or within rounding of them";
  if (!terms.reason.empty()) terms.left_out = std::numeric_limits<double>::infinity();
}

ErrorTerms QpPoint::measure_error() {
  constexpr double safety = 4, rounding = 8 * std::numeric_limits<double>::epsilon();
  ErrorTerms terms;
  terms.reason = reason();
  if (terms.reason.empty() && data_.owner != this) terms.reason = "another derivative was taken since";
  if (!terms.reason.empty()) {
    terms.left_out = std::numeric_limits<double>::infinity();
    return terms;
  }
  derivative_.linearise(at_);
  const auto n = static_cast<std::size_t>(sizes_.n), m = static_cast<std::size_t>(sizes_.m),
             p = static_cast<std::size_t>(sizes_.p);
  const auto parts = [&](auto w) {
    return std::array{w.first(n), w.subspan(n, m), w.subspan(n + m, p), w.subspan(n + m + p, n)};
  };
  double error = 0;
  if (last_is_jvp_) {
    std::vector<double> precise(last_.size()), moved(last_.size());
    const auto tangents = [&](Vector w) {
      const auto part = parts(w);
      return QpTangents{part[0], part[1], part[2], part[3]};
    };
    error = derivative_.jvp_precisely(data_.tangents(), tangents(precise), tangents(moved));
    terms.rounding = rounding * norm(precise);
    for (std::size_t i = 0; i < last_.size(); ++i) {
      moved[i] -= precise[i];
      precise[i] -= sign_ * last_[i];
    }
    terms.left_out = norm(precise);
    terms.from_distance = safety * norm(moved);
    if (!data_.is_smooth()) {
      const std::vector<Array> direction = data_.direction();
      look_for_kinks(terms, norm(last_), [&] {
        std::vector<double> out(last_.size());
        const auto part = parts(Vector(out));
        derivative_.jvp(data_.push_forward(direction), part[0], part[1], part[2], part[3]);
        return out;
      });
    }
  } else {
    std::vector<std::vector<double>> returned = data_.bars(), precise = returned, moved = returned;
    const auto c = parts(ConstVector(last_));
    error = derivative_.vjp_precisely(c[0], c[1], c[2], c[3], QpDataAt::view_of(precise), QpDataAt::view_of(moved));
    terms.left_out = returned == precise ? 0 : norm_of_pulled_back(returned, precise);
    terms.from_distance = safety * norm_of_pulled_back(moved, precise);
    // Rounding of the sums that θ̄ is made of, and of each cotangent of the data.
    for (std::size_t i = 0; i < blocks; ++i)
      for (std::size_t k = 0; k < precise[i].size(); ++k) moved[i][k] = precise[i][k] * (k % 2 == 0 ? 2 : 0);
    terms.rounding = rounding * (last_size_ + terms.left_out + norm_of_pulled_back(moved, precise));
    if (!data_.is_smooth()) {
      look_for_kinks(terms, last_size_, [&] {
        data_.bars() = precise;
        return data_.pulled_back();
      });
    }
  }
  if (!(error < 1e-3)) {
    terms.left_out = std::numeric_limits<double>::infinity();
    terms.reason = fmt::format("the linear system of the derivative was solved to {:.1e} only", error);
  }
  return terms;
}

namespace {
std::string constraint_name(const QpData& data, std::size_t i) {
  if (i < data.m) return fmt::format("equality {}", i);
  return i < data.m + data.p ? fmt::format("row {}", i - data.m) : fmt::format("variable {}", i - data.m - data.p);
}

}  // namespace

std::string describe(const QpDegeneracy& found, const QpData& data) {
  if (found.none()) return "";
  std::string text;
  const auto list = [&](const char* what, const std::vector<std::size_t>& which, const auto& about) {
    if (which.empty()) return;
    text += text.empty() ? "" : "; ";
    text += what;
    for (std::size_t i = 0; i < std::min<std::size_t>(which.size(), 8); ++i)
      text += (i == 0 ? " " : ", ") + constraint_name(data, which[i]) + about(i);
    if (which.size() > 8) text += fmt::format(" and {} more", which.size() - 8);
  };
  const auto nothing = [](std::size_t) { return std::string(); };
  list("strict complementarity fails at", found.undecided, [&](std::size_t i) {
    return i < found.margins.size()
               ? fmt::format(" (slack {:.1e}, multiplier {:.1e})", found.margins[i].slack, found.margins[i].multiplier)
               : std::string();
  });
  list("active constraints are dependent:", found.dependent, nothing);
  std::vector<std::size_t> variables;
  for (const std::size_t j : found.not_unique) variables.push_back(data.m + data.p + j);
  list("the solution is not unique in", variables, nothing);
  if (text.empty()) text = fmt::format("the linear system of the derivative was solved to {:.1e} only", found.residual);
  return text;
}

/// Why there is no derivative at the solution, or none that can be trusted; empty: there is.
std::string QpPoint::reason() {
  derivative_.linearise(QpDerivativeAt::solution);
  const QpActiveSet& set = derivative_.active_set();
  if (set.is_decided() && set.undecided().empty()) return "";
  const std::string text = describe(derivative_.find_degeneracy(), data_.data());
  if (!text.empty()) return text;
  return set.is_singular() ? "the linear system of the active constraints is singular: they are linearly dependent, or the "
                             "solution is not unique"
                           : "no set of active constraints was found for which slacks and multipliers have the right signs";
}

}  // namespace onestep::detail
