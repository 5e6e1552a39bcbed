// Columns of numbers and texts as features: categories one-hot, missing values replaced.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "onestep/dataset.h"

namespace onestep::data {

inline constexpr std::size_t most_levels = 100;  // that a category may have, and classes that texts name

/// What a column has: numbers, or the places of its levels; NaN where a value is missing.
struct RawColumn {
  std::map<std::string, std::size_t> found;  ///< the texts, with their places in the order they were found
  std::vector<std::size_t> text_rows;        ///< the samples that have them, ascending
  const char* first_text = nullptr;          ///< where the first of them stands
  std::size_t missing = 0;                   ///< values that are
  std::size_t codes = 0;                     ///< numbers that may be codes, such as 007
  bool category = false;                     ///< asked for
  std::string reference = {};                ///< its level, where one is asked for
};

/// The levels that a column was found to have, in ascending order, of numbers if all are, the reference first; `of` are the
/// places that samples have in the order they were found, which become the places in this one.
std::vector<std::string> sorted_levels(const RawColumn& column, std::vector<double>& of);

/// How many samples were left out, and that the target is what they lack, where it is.
std::string note_on_left_out(std::size_t left_out, std::size_t without_target, std::size_t samples);

/// A note where the values look like dates such as 20240131, or like those of an identifier: whole numbers that go up by one
/// from sample to sample, or that all differ.
std::optional<std::string> note_on_identifier(const std::string& name, const std::vector<double>& values);

/// A note where many samples are copies of others, and could hardly be by chance.
std::optional<std::string> note_on_copies(const std::vector<std::vector<double>>& columns, const std::vector<double>& y);

/// What stands for a missing value: the mean of the others, or the most frequent level.
double fill_of(const std::vector<double>& values, bool category);

/// The samples as features; `columns` has the values of each column. NaN is replaced as the encoding says.
std::vector<double> encoded(const std::vector<std::vector<double>>& columns, const std::vector<ColumnEncoding>& encoding);

/// What is said about a category.
std::string note_on_levels(const ColumnEncoding& category);
/// What is said about the columns that lack values.
std::vector<std::string> notes_on_filled(const std::vector<std::vector<double>>& columns,
                                         const std::vector<ColumnEncoding>& encoding);

/// How many features a column became.
std::size_t features_of(const ColumnEncoding& column);

}  // namespace onestep::data
