// Derivatives of the problems that a slot has solved: all together where that can be, else one by one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "problems_slot.h"

namespace onestep::python {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

Array view_of(const Shape& shape, const double* entries) {
  if (shape.rank() == 0) return Array(*entries);
  if (shape.rank() == 1) return Array::view(std::span(entries, static_cast<std::size_t>(shape.size())));
  return Array::view(MatrixView{entries, shape[0], shape[1], shape[1], 1});
}

bool is_zero(std::span<const double> v) {
  return std::ranges::all_of(v, [](double e) { return e == 0; });
}
bool is_finite(std::span<const double> v) {
  return std::ranges::all_of(v, [](double e) { return std::isfinite(e); });
}

}  // namespace

Derivation::Derivation(const Problems& problems, const Problems::Slot& slot, const Layout& layout, const Directions& which)
    : problems_(problems), slot_(slot), layout_(layout), which_(which) {}

void Derivation::clear(const Problems& problems, const Layout& layout, const Directions& which, Outputs out) {
  std::size_t next = 0;
  for (std::size_t k = 0; k < problems.shapes_.theta.size(); ++k) {
    if (!which.given[k]) continue;
    const bool has_axis = layout.batched[problems.shapes_.start.size() + k] || which.apart[k];
    const std::size_t problems_of_it = has_axis ? layout.count : 1;
    std::fill_n(out[next++], which.count * problems_of_it * static_cast<std::size_t>(problems.shapes_.theta[k].size()), 0.0);
  }
}

// The library adds up the gradients of shared parameters, on all threads, where every problem has one.
bool Derivation::is_together() const {
  if (slot_.many() == nullptr) return false;
  for (std::size_t k = 0; k < which_.given.size(); ++k)
    if (which_.given[k] && has_axis(k) != is_batched(k)) return false;
  return problems_.on_error_ == OnError::raise;
}

void Derivation::vjp(Inputs c, Outputs out) const {
  const bool together = is_together();
  for (std::size_t d = 0; d < which_.count; ++d) {
    if (together)
      vjp_together(d, c, out);
    else
      vjp_one_by_one(d, c, out);
  }
}

void Derivation::vjp_together(std::size_t direction, Inputs c, Outputs out) const {
  std::vector<Many> cotangents;
  for (std::size_t part = 0; part < c.size(); ++part) {
    const Shape& shape = problems_.shapes_.state[part];
    const double* first = c[part] + direction * layout_.count * static_cast<std::size_t>(shape.size());
    std::vector<Array> each;
    each.reserve(layout_.count);
    for (std::size_t i = 0; i < layout_.count; ++i)
      each.push_back(view_of(shape, first + i * static_cast<std::size_t>(shape.size())));
    cotangents.emplace_back(std::move(each));
  }
  const std::vector<Many> gradients = slot_.many()->vjp(cotangents);
  std::size_t next = 0;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    if (!which_.given[k]) continue;
    double* to = out[next++] + direction * gradients[k].count() * size(k);
    for (std::size_t i = 0; i < gradients[k].count(); ++i) gradients[k][i].copy_to({to + i * size(k), size(k)});
  }
}

// Calls `use` with problem i, and `otherwise` where it has no derivative and that is no error here.
void Derivation::derive(std::size_t i, bool is_finite, const std::function<void(const Solution&)>& use,
                        const std::function<void()>& otherwise) const {
  const OnError on_error = problems_.on_error_;
  if (on_error == OnError::raise) return use(slot_.one(i));
  if (!is_finite) return otherwise();
  const Solution its = slot_.one(i);
  try {
    use(on_error == OnError::keep ? its.even_if_unconverged() : its);
  } catch (const NotConvergedError&) { otherwise(); } catch (const NoDerivativeError&) {
    otherwise();
  }
}

// A direction that is zero, as that of a problem which a loss leaves out, has the derivative zero even where there is none.
void Derivation::vjp_one_by_one(std::size_t direction, Inputs c, Outputs out) const {
  const std::size_t parameters = problems_.shapes_.theta.size();
  std::vector<std::vector<double>> gradient(parameters);
  std::vector<std::span<double>> to(parameters);
  for (std::size_t k = 0; k < parameters; ++k) {
    gradient[k].resize(size(k));
    to[k] = gradient[k];
  }
  std::size_t next = 0;
  for (std::size_t k = 0; k < parameters; ++k)
    if (which_.given[k] && !has_axis(k)) {
      std::fill_n(out[next++] + direction * size(k), size(k), 0.0);
    } else if (which_.given[k]) {
      ++next;
    }
  for (std::size_t i = 0; i < layout_.count; ++i) {
    std::vector<std::span<const double>> of_one;
    bool zero = true, finite = true;
    for (std::size_t part = 0; part < c.size(); ++part) {
      const auto entries = static_cast<std::size_t>(problems_.shapes_.state[part].size());
      of_one.emplace_back(c[part] + (direction * layout_.count + i) * entries, entries);
      zero = zero && is_zero(of_one.back());
      finite = finite && is_finite(of_one.back());
    }
    if (zero) {
      for (auto& g : gradient) std::ranges::fill(g, 0.0);
    } else {
      derive(
          i, finite, [&](const Solution& its) { its.vjp_into(of_one, to); },
          [&] {
            for (auto& g : gradient) std::ranges::fill(g, nothing);
          });
    }
    next = 0;
    for (std::size_t k = 0; k < parameters; ++k) {
      if (!which_.given[k]) continue;
      double* result = out[next++];
      if (has_axis(k)) {
        std::ranges::copy(gradient[k], result + (direction * layout_.count + i) * size(k));
      } else {
        double* sum = result + direction * size(k);
        for (std::size_t e = 0; e < size(k); ++e) sum[e] += gradient[k][e];
      }
    }
  }
}

Array Derivation::tangent(std::size_t k, std::size_t direction, std::size_t i, Inputs v) const {
  if (!which_.given[k]) return full(theta(k), 0.0);
  std::size_t at = 0;
  for (std::size_t before = 0; before < k; ++before) at += which_.given[before] ? 1U : 0U;
  const std::size_t problem = has_axis(k) ? direction * layout_.count + i : direction;
  return view_of(theta(k), v[at] + problem * size(k));
}

void Derivation::jvp(Inputs v, Outputs out) const {
  const bool together = slot_.many() != nullptr && problems_.on_error_ == OnError::raise;
  for (std::size_t d = 0; d < which_.count; ++d) {
    if (together)
      jvp_together(d, v, out);
    else
      for (std::size_t i = 0; i < layout_.count; ++i) jvp_one(d, i, v, out);
  }
}

void Derivation::jvp_together(std::size_t direction, Inputs v, Outputs out) const {
  std::vector<Many> tangents;
  for (std::size_t k = 0; k < problems_.shapes_.theta.size(); ++k) {
    if (!which_.given[k] || !has_axis(k)) {
      tangents.emplace_back(tangent(k, direction, 0, v));
      continue;
    }
    std::vector<Array> each;
    each.reserve(layout_.count);
    for (std::size_t i = 0; i < layout_.count; ++i) each.push_back(tangent(k, direction, i, v));
    tangents.emplace_back(std::move(each));
  }
  const std::vector<Many> moved = slot_.many()->jvp(tangents);
  for (std::size_t part = 0; part < out.size(); ++part) {
    const auto size = static_cast<std::size_t>(problems_.shapes_.state[part].size());
    double* to = out[part] + direction * layout_.count * size;
    for (std::size_t i = 0; i < layout_.count; ++i) moved[part][i].copy_to({to + i * size, size});
  }
}

void Derivation::jvp_one(std::size_t direction, std::size_t i, Inputs v, Outputs out) const {
  std::vector<Array> tangents;
  bool zero = true, finite = true;
  for (std::size_t k = 0; k < problems_.shapes_.theta.size(); ++k) {
    tangents.push_back(tangent(k, direction, i, v));
    if (!which_.given[k]) continue;
    zero = zero && is_zero(tangents.back().values());
    finite = finite && is_finite(tangents.back().values());
  }
  std::size_t total = 0;
  for (const Shape& part : problems_.shapes_.state) total += static_cast<std::size_t>(part.size());
  std::vector<double> moved(total, 0.0);
  if (!zero)
    derive(
        i, finite, [&](const Solution& its) { its.jvp_into(tangents, moved); }, [&] { std::ranges::fill(moved, nothing); });
  std::span<const double> rest = moved;
  for (std::size_t part = 0; part < out.size(); ++part) {
    const auto size = static_cast<std::size_t>(problems_.shapes_.state[part].size());
    std::ranges::copy(rest.first(size), out[part] + (direction * layout_.count + i) * size);
    rest = rest.subspan(size);
  }
}

}  // namespace onestep::python
