// Labels as classes and as signs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "onestep/dataset.h"

namespace onestep {
namespace {

[[noreturn]] void wrong(std::string_view who, std::string_view what) {
  throw MisuseError(fmt::format("[{}] {}", who, what));
}

// The labels as a span that `owner` keeps.
std::span<const double> labels_in(std::string_view who, const Array& y, Array& owner) {
  if (y.shape().rank() != 1) wrong(who, fmt::format("labels are a vector, not of shape {}", to_string(y.shape())));
  if (y.size() == 0) wrong(who, "there is no label");
  owner = y.contiguous();
  return owner.values();
}

// The distinct labels, ascending; no more than one above `at_most`.
std::vector<double> distinct(std::string_view who, std::span<const double> labels, std::size_t at_most) {
  std::vector<double> values;
  for (std::size_t i = 0; i < labels.size() && values.size() <= at_most; ++i) {
    if (!std::isfinite(labels[i])) wrong(who, fmt::format("the label of sample {} is {}", i + 1, labels[i]));
    const auto at = std::lower_bound(values.begin(), values.end(), labels[i]);
    if (at == values.end() || *at != labels[i]) values.insert(at, labels[i]);
  }
  return values;
}

std::string list_of(const std::vector<double>& values) {
  constexpr std::size_t most = 5;
  if (values.size() > most)
    return fmt::format("{} and more", fmt::join(values.begin(), values.begin() + std::ptrdiff_t{most}, ", "));
  return fmt::format("{}{}{}", fmt::join(values.begin(), values.end() - 1, ", "), values.size() > 1 ? " and " : "",
                     values.back());
}

std::vector<double> index_in(std::string_view who, std::span<const double> labels, const std::vector<double>& values) {
  if (values.empty() || !std::is_sorted(values.begin(), values.end(), std::less_equal<>()))
    wrong(who, "the labels to choose from have to ascend, and there has to be one");
  std::vector<double> index(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto at = std::lower_bound(values.begin(), values.end(), labels[i]);
    if (at == values.end() || *at != labels[i])
      wrong(who, fmt::format("the label of sample {} is {}, which is not among {}", i + 1, labels[i], list_of(values)));
    index[i] = static_cast<double>(at - values.begin());
  }
  return index;
}

Array vector_of(std::vector<double> entries) {
  const Shape shape{static_cast<std::int64_t>(entries.size())};
  return {shape, std::move(entries)};
}

Array signs_in(std::string_view who, std::span<const double> labels, const std::vector<double>& values) {
  std::vector<double> signs = index_in(who, labels, values);
  for (double& e : signs) e = 2 * e - 1;
  return vector_of(std::move(signs));
}

}  // namespace

Classes classes_of(const Array& y, std::size_t at_most) {
  constexpr std::string_view who = "classes_of";
  Array owner;
  const std::span<const double> labels = labels_in(who, y, owner);
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (!std::isfinite(labels[i]) || labels[i] != std::floor(labels[i]))
      wrong(who, fmt::format("the label of sample {} is {}; classes are whole numbers, a quantity is for regression", i + 1,
                             labels[i]));
  std::vector<double> values = distinct(who, labels, at_most);
  if (values.size() > at_most)
    wrong(who, fmt::format("there are more than {} different labels; a quantity is for regression", at_most));
  Array index = vector_of(index_in(who, labels, values));
  return {std::move(values), std::move(index)};
}

Array class_index(const Array& y, const std::vector<double>& values) {
  Array owner;
  return vector_of(index_in("class_index", labels_in("class_index", y, owner), values));
}

Array signs_of(const Array& y) {
  constexpr std::string_view who = "signs_of";
  constexpr std::size_t enough_to_show = 6;
  Array owner;
  const std::span<const double> labels = labels_in(who, y, owner);
  const std::vector<double> values = distinct(who, labels, enough_to_show);
  if (values.size() == 1) wrong(who, fmt::format("every label is {}; two classes are needed", values.front()));
  if (values.size() > 2) wrong(who, fmt::format("the labels are {}; there have to be two", list_of(values)));
  return signs_in(who, labels, values);
}

Array signs_of(const Array& y, const std::vector<double>& labels) {
  constexpr std::string_view who = "signs_of";
  if (labels.size() != 2) wrong(who, fmt::format("{} labels to choose from; there have to be two", labels.size()));
  Array owner;
  return signs_in(who, labels_in(who, y, owner), labels);
}

}  // namespace onestep
