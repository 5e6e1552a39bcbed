// A solver prepared for one layout, with memory of its own.
#include "problems_slot.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace onestep::python {
namespace {

Array view_of(const Shape& shape, const double* entries) {
  if (shape.rank() == 0) return Array(*entries);
  if (shape.rank() == 1) return Array::view(std::span(entries, static_cast<std::size_t>(shape.size())));
  return Array::view(MatrixView{entries, shape[0], shape[1], shape[1], 1});
}

}  // namespace

Problems::Slot::Slot(const Problems& problems, Layout layout) : problems_(problems), layout_(std::move(layout)) {
  for (std::size_t i = 0; i < problems_.inputs(); ++i) inputs_.emplace_back(size_of(i));
  for (const Shape& part : problems_.shapes_.state)
    state_.emplace_back(layout_.count * static_cast<std::size_t>(part.size()));
  const std::size_t starts = problems_.shapes_.start.size(), thetas = problems_.shapes_.theta.size();
  const Estimator& estimator = problems_.estimator_;
  if (layout_.count == 1) {
    if (starts > 0)
      prepared_.emplace(problems_.solver_, parts_of(0, starts), parts_of(starts, thetas), estimator);
    else
      prepared_.emplace(problems_.solver_, parts_of(0, thetas), estimator);
  } else if (starts > 0) {
    prepared_many_.emplace(problems_.solver_, all_of(0, starts), all_of(starts, thetas), estimator);
  } else {
    prepared_many_.emplace(problems_.solver_, all_of(0, thetas), estimator);
  }
}

std::size_t Problems::Slot::size_of(std::size_t input) const {
  return (layout_.batched[input] ? layout_.count : 1) * static_cast<std::size_t>(problems_.input(input).size());
}

Array Problems::Slot::array_of(std::size_t input, std::size_t problem) const {
  const Shape& shape = problems_.input(input);
  const std::size_t first = layout_.batched[input] ? problem * static_cast<std::size_t>(shape.size()) : 0;
  return view_of(shape, inputs_[input].data() + first);
}

Parts Problems::Slot::parts_of(std::size_t first, std::size_t count) const {
  std::vector<Array> parts;
  parts.reserve(count);
  for (std::size_t input = first; input < first + count; ++input) parts.push_back(array_of(input, 0));
  return parts;
}

std::vector<Many> Problems::Slot::all_of(std::size_t first, std::size_t count) const {
  std::vector<Many> all;
  for (std::size_t input = first; input < first + count; ++input) {
    if (!layout_.batched[input]) {
      all.emplace_back(array_of(input, 0));
      continue;
    }
    std::vector<Array> each;
    each.reserve(layout_.count);
    for (std::size_t i = 0; i < layout_.count; ++i) each.push_back(array_of(input, i));
    all.emplace_back(std::move(each));
  }
  return all;
}

void Problems::Slot::solve(Inputs inputs) {
  is_solved_ = false;
  many_.reset();  // its memory is used again
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs_[i].empty()) std::memcpy(inputs_[i].data(), inputs[i], inputs_[i].size() * sizeof(double));
  const std::size_t starts = problems_.shapes_.start.size(), thetas = problems_.shapes_.theta.size();
  if (prepared_) {
    if (starts > 0)
      prepared_->solve(parts_of(0, starts), parts_of(starts, thetas));
    else
      prepared_->solve(parts_of(0, thetas));
  } else if (starts > 0) {
    many_ = prepared_many_->solve(all_of(0, starts), all_of(starts, thetas));
  } else {
    many_ = prepared_many_->solve(all_of(0, thetas));
  }
  is_solved_ = true;
}

Solution Problems::Slot::one(std::size_t i) const { return prepared_ ? prepared_->solution() : (*many_)[i]; }

Status Problems::Slot::status(std::size_t i) const {
  return prepared_ ? prepared_->solution().status() : (*many_)[i].status();
}

std::vector<std::size_t> Problems::Slot::failed() const {
  if (many_) return many_->failed();
  return is_solution(prepared_->solution().status()) ? std::vector<std::size_t>() : std::vector<std::size_t>{0};
}

void Problems::Slot::write_state(const std::vector<std::size_t>& failed) {
  for (std::size_t i = 0; i < layout_.count; ++i) {
    const bool is_lost = std::ranges::binary_search(failed, i);
    const Solution its = many_ ? one(i) : Solution(prepared_->solution());
    std::span<const double> rest = its.entries();
    for (std::size_t part = 0; part < state_.size(); ++part) {
      const auto size = static_cast<std::size_t>(problems_.shapes_.state[part].size());
      double* to = state_[part].data() + i * size;
      if (is_lost || rest.size() < size)
        std::fill_n(to, size, std::numeric_limits<double>::quiet_NaN());
      else
        std::copy_n(rest.begin(), size, to);
      rest = rest.subspan(std::min(size, rest.size()));
    }
  }
}

void Problems::Slot::copy_state_to(Outputs state) const {
  for (std::size_t part = 0; part < state_.size(); ++part) std::ranges::copy(state_[part], state[part]);
}

void Problems::Slot::adopt_state(Inputs state) {
  for (std::size_t part = 0; part < state_.size(); ++part)
    std::copy_n(state[part], state_[part].size(), state_[part].begin());
}

bool Problems::Slot::has_solved(Inputs inputs, Inputs state) const {
  if (!is_solved_) return false;
  const auto is_same = [](const std::vector<double>& kept, const double* given) {
    return kept.empty() || std::memcmp(kept.data(), given, kept.size() * sizeof(double)) == 0;
  };
  for (std::size_t part = 0; part < state_.size(); ++part)
    if (!is_same(state_[part], state[part])) return false;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (!is_same(inputs_[i], inputs[i])) return false;
  return true;
}

}  // namespace onestep::python
