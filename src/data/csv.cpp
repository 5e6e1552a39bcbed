// Samples as comma-separated text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "data/csv_cells.h"
#include "data/csv_columns.h"
#include "data/csv_header.h"
#include "data/csv_records.h"
#include "data/csv_target.h"
#include "data/csv_words.h"
#include "data/encoding.h"
#include "data/parse.h"
#include "data/text.h"

namespace onestep {
namespace data {

namespace {

constexpr std::string_view csv_reader = "read_csv";

class CsvParser {
 public:
  CsvParser(const Source& source, const std::string& text, const CsvOptions& options)
      : source_(source), options_(options), records_(source, text) {}

  Dataset parse() {
    const char said = records_.take_separator_line();
    if (!records_.find()) fail(source_, "there is no line in it");
    find_dialect(options_.separator != '\0' ? options_.separator : said);
    find_columns();
    first_sample_ = records_.here();
    while (records_.find()) read_sample();
    if (samples_ == 0)
      columns_->names().empty()
          ? fail(source_, "there is no sample in it")
          : fail(source_, "there is no sample in it, only a line of names; if those are values, say that there is no header",
                 Remedy::no_header);
    return dataset();
  }

 private:
  // ---- the first line ----

  void find_dialect(char separator) {
    records_.set_separator(separator != '\0'                       ? separator
                           : options_.decimal == CsvOptions::comma ? separator_beside_commas()
                                                                   : records_.likely_separator());
    records_.set_decimal_comma(options_.decimal == CsvOptions::comma);
    if (options_.decimal == CsvOptions::guessed && guess_decimal_comma(records_)) {
      records_.set_decimal_comma(true);
      notes_.emplace_back("numbers have a comma before their decimals");
    }
    if (separator == '\0' && records_.separator() == ';') notes_.emplace_back("semicolons separate the fields");
  }
  char separator_beside_commas() const { return records_.likely_separator() == '\t' ? '\t' : ';'; }

  void find_columns() {
    records_.find();  // its first field, now that the separator is known
    const char* const beginning = records_.here();
    const std::vector<std::string> fields = records_.read();
    columns_.emplace(source_, options_, fields);
    const FirstLine first = first_line_of(fields, *columns_, options_, records_);
    std::size_t count = fields.size();
    if (first == FirstLine::sample) records_.go_to(beginning);
    if (first == FirstLine::counts) count = records_.peek(1)[0].size();
    if (options_.header == CsvOptions::automatic)
      for (std::string& note : notes_on_header(first, fields, records_)) notes_.push_back(std::move(note));
    std::vector<std::size_t> empty;
    if (!columns_->are_known()) empty = empty_columns(fields, count);
    if (!empty.empty()) notes_.push_back(note_on_empty(empty, count));
    columns_->settle(first == FirstLine::names, count, empty);
    if (!options_.encoding.empty() && options_.encoding.size() != columns_->features().size())
      fail(source_, fmt::format("has {} columns of features, the samples that were learned from had {}",
                                columns_->features().size(), options_.encoding.size()));
    raw_.resize(columns_->features().size());
    values_.resize(raw_.size());
    place_.assign(count, 0);
    for (std::size_t j = 0; j < raw_.size(); ++j) place_[columns_->features()[j]] = j;
    cells_.emplace(records_, *columns_, options_);
    target_.emplace(*cells_, *columns_, options_);
    for (const std::string& asked : options_.category) ask_for_category(asked);
  }

  // Columns without names and values, which separators at the ends of lines make.
  std::vector<std::size_t> empty_columns(const std::vector<std::string>& first_line, std::size_t count) {
    std::vector<std::size_t> empty;
    for (std::size_t i = 0; i < std::min(count, first_line.size()); ++i)
      if (first_line[i].empty()) empty.push_back(i);
    const char* const before = records_.here();
    while (!empty.empty() && records_.find()) {
      std::size_t column = 0;
      do {
        if (!records_.read_field(column).empty()) std::erase(empty, column);
        ++column;
      } while (records_.next_field());
    }
    records_.go_to(before);
    if (empty.size() == count || !records_.find()) empty.clear();
    records_.go_to(before);
    return empty;
  }

  void ask_for_category(const std::string& asked) {
    const std::size_t equals = asked.rfind('=');
    const bool whole = equals == asked.npos || std::ranges::find(columns_->names(), asked) != columns_->names().end();
    const std::size_t column = columns_->find(whole ? asked : asked.substr(0, equals), "to be a category");
    if (columns_->kind(column) != Columns::Kind::feature)
      fail(source_,
           fmt::format("the column {} is not a feature and cannot be a category", quoted(columns_->name_of(column))));
    RawColumn& raw = raw_[place_[column]];
    raw.category = true;
    if (!whole) raw.reference = asked.substr(equals + 1);
  }

  // ---- samples ----

  void read_sample() {
    const char* const first = records_.here();
    std::size_t column = 0;
    do {
      if (columns_->kind(column) == Columns::Kind::dropped)
        records_.read_field(column);
      else if (columns_->kind(column) == Columns::Kind::feature)
        values_[place_[column]].push_back(read_value(column));
      else
        target_->read();
      ++column;
    } while (records_.next_field());
    if (column != columns_->count())
      fail(source_, records_.line_of(first), fmt::format("has {} fields, the first line has {}", column, columns_->count()));
    ++samples_;
    const std::size_t entries = samples_ * (values_.size() + 1);
    if (entries > options_.memory_limit / sizeof(double))
      check_memory(source_, fmt::format("the entries up to sample {} alone", samples_), static_cast<double>(entries),
                   options_.memory_limit);
  }

  // A number, or the place of a level; NaN for what is missing.
  double read_value(std::size_t column) {
    RawColumn& raw = raw_[place_[column]];
    const Cell cell = cells_->read(column);
    if (cell.missing) {
      ++raw.missing;
      return NAN;
    }
    if (!options_.encoding.empty()) return known_value(cell, options_.encoding[place_[column]].levels);
    if (cell.number && !raw.category) {
      raw.codes += is_code(cell.text) ? 1 : 0;
      return *cell.number;
    }
    if (!cell.number) check_text(cell, raw.category);
    if (!cell.number && raw.text_rows.empty()) raw.first_text = cell.where;
    if (!cell.number) raw.text_rows.push_back(samples_);
    return count_level(raw, cell);
  }

  // Of a column that other samples have, too.
  double known_value(const Cell& cell, const std::vector<std::string>& levels) {
    if (levels.empty() && cell.number) return *cell.number;
    if (levels.empty()) cells_->refuse(cell, "it was a number in the samples that were learned from");
    const auto found = std::ranges::find(levels, cell.text);
    if (found == levels.end())
      cells_->fail_at(cell,
                      fmt::format("{} is {}, a level that was not there to learn from, which were {}; leave the sample "
                                  "out, or fit again with samples that have it",
                                  cells_->title(cell.column), quoted(cell.text), list_of(levels)));
    return static_cast<double>(found - levels.begin());
  }

  // What cannot be the level of a category.
  void check_text(const Cell& cell, bool asked_for) {
    if (columns_->count() == 1)
      cells_->refuse(cell, "the first line has no comma, semicolon or tab: say what separates the fields",
                     Remedy::separator);
    if (asked_for) return;
    if (is_date(cell.text))
      cells_->refuse(cell,
                     "it looks like a date or a time, which a linear model cannot use as it is: give the days since some "
                     "day, or year, month and weekday in columns of their own, or drop the column",
                     Remedy::drop);
    if (is_dressed_number(cell.text)) cells_->refuse_dressed(cell);
    if (options_.categories) return;
    cells_->refuse_beyond_double(cell);
    const bool may_be_target = cell.column == 0 && options_.target.empty() && options_.names.empty();
    cells_->refuse(cell,
                   may_be_target ? "give categories numbers, drop the column, or make it the target"
                                 : "give categories numbers, or drop the column",
                   may_be_target ? Remedy::drop_or_target : Remedy::drop);
  }

  double count_level(RawColumn& raw, const Cell& cell) {
    const bool too_many = raw.found.size() == most_levels && !raw.found.contains(std::string(cell.text));
    if (too_many && raw.category)
      fail(source_,
           fmt::format("the column {} is to be a category, but has more than {} different values, too many for one; do not "
                       "make it a category, or drop the column",
                       quoted(columns_->name_of(cell.column)), most_levels),
           Remedy::drop);
    if (too_many)
      cells_->refuse(cell,
                     fmt::format("the column has more than {} different texts, too many to be a category; drop the column",
                                 most_levels),
                     Remedy::drop);
    return static_cast<double>(raw.found.try_emplace(std::string(cell.text), raw.found.size()).first->second);
  }

  // ---- all samples ----

  Dataset dataset() {
    Dataset set;
    set.label_names = columns_->target() ? target_->name_classes(first_sample_) : options_.label_names;
    if (!target_->note().empty()) notes_.push_back(target_->note());
    set.unknown_labels = target_->take_unknown();
    y_ = std::move(target_->values());
    set.encoding = options_.encoding;
    if (set.encoding.empty())
      for (std::size_t j = 0; j < raw_.size(); ++j) set.encoding.push_back(levels_of(j));
    set.in_file = samples_;
    set.separator = records_.separator();
    for (std::size_t j = 0; j < raw_.size(); ++j)
      if (raw_[j].codes > 0 && set.encoding[j].levels.empty()) set.codes.push_back(set.encoding[j].name);
    for (std::string& note : cells_->notes_on_missing_texts()) notes_.push_back(std::move(note));
    leave_out_samples(set);
    const auto rows = static_cast<std::int64_t>(samples_ - left_out_);
    if (rows == 0) fail(source_, "every sample lacks a value; drop the columns that have none", Remedy::drop);
    if (options_.encoding.empty()) {
      if (std::optional<std::string> note = note_on_copies(values_, y_)) notes_.push_back(std::move(*note));
      for (std::size_t j = 0; j < raw_.size(); ++j) fill_column(j, set.encoding[j]);
    }
    for (std::string& note : notes_on_filled(values_, set.encoding)) notes_.push_back(std::move(note));
    std::vector<double> entries = encoded(values_, set.encoding);
    for (std::size_t j = 0; j < raw_.size(); ++j)
      set.columns.insert(set.columns.end(), features_of(set.encoding[j]),
                         static_cast<std::int64_t>(columns_->features()[j]) + 1);
    set.A = Array(Shape{rows, static_cast<std::int64_t>(set.columns.size())}, std::move(entries));
    const bool labelled = columns_->target().has_value();
    set.y = Array(Shape{labelled ? rows : 0}, std::move(y_));
    set.target_column = labelled ? static_cast<std::int64_t>(*columns_->target()) + 1 : 0;
    if (columns_->leaves_out_index()) notes_.emplace_back(note_on_index);
    note_on_names(set);
    set.notes = std::move(notes_);
    const std::vector<std::string>& names = columns_->names();
    if (names.empty()) return set;
    set.names = feature_names(set.encoding);
    if (labelled) set.target_name = names[*columns_->target()];
    for (std::size_t i = 0; i < names.size(); ++i)
      if (columns_->kind(i) == Columns::Kind::dropped && !names[i].empty()) set.left_out.push_back(names[i]);
    return set;
  }

  // Names that are empty, and texts whose letters are lost.
  void note_on_names(const Dataset& set) {
    const std::vector<std::string>& names = columns_->names();
    for (const std::size_t column : columns_->features())
      if (column < names.size() && names[column].empty())
        notes_.push_back(fmt::format("column {} has no name: give it one in the first line", column + 1));
    std::vector<std::string> texts(names.begin(), names.end());
    texts.insert(texts.end(), set.label_names.begin(), set.label_names.end());
    for (const ColumnEncoding& column : set.encoding) texts.insert(texts.end(), column.levels.begin(), column.levels.end());
    std::erase_if(texts, [](const std::string& text) { return is_utf8(text); });
    if (!texts.empty())
      notes_.push_back(fmt::format("{} is not UTF-8: save the file as UTF-8 (iconv -f LATIN1 -t UTF-8, where it is Latin-1)",
                                   list_of(texts)));
  }

  // Whether the column is a category, and its levels, which its values are the places of from here on.
  ColumnEncoding levels_of(std::size_t j) {
    RawColumn& raw = raw_[j];
    std::vector<double>& values = values_[j];
    const std::size_t column = columns_->features()[j];
    ColumnEncoding encoding{.name = columns_->name_of(column), .unnamed = columns_->names().empty()};
    if (!raw.category && raw.text_rows.empty()) {
      if (std::optional<std::string> note = note_on_identifier(encoding.name, values)) notes_.push_back(std::move(*note));
      return encoding;
    }
    const std::size_t known = values.size() - raw.missing;
    if (!raw.category) {
      if (known > 2 * raw.text_rows.size()) cells_->refuse_among_numbers(raw.first_text, column);
      if (known > raw.text_rows.size()) count_again(raw, values, column);
      if (2 * raw.found.size() > known)
        cells_->refuse_at(raw.first_text, column,
                          fmt::format("{} of {} samples have a text of their own, too many to be the levels of a category; "
                                      "drop the column",
                                      raw.found.size(), known),
                          Remedy::drop);
    }
    if (!raw.reference.empty() && !raw.found.contains(raw.reference))
      fail(source_,
           fmt::format("no sample has the level {} in the column {}", quoted(raw.reference), quoted(encoding.name)));
    encoding.levels = sorted_levels(raw, values);
    notes_.push_back(note_on_levels(encoding));
    return encoding;
  }

  // The levels of a column of texts and numbers, which are compared as they are written.
  void count_again(RawColumn& raw, std::vector<double>& values, std::size_t column) {
    raw.found.clear();
    std::size_t row = 0;
    cells_->read_again(first_sample_, column, [&](std::string_view text) {
      if (row < values.size() && !text.empty())
        values[row] = count_level(raw, {.where = raw.first_text, .column = column, .text = text});
      ++row;
    });
  }

  // Samples without a target, and those with missing values where these are not replaced.
  void leave_out_samples(Dataset& set) {
    std::vector<std::size_t> kept;
    std::size_t without_target = 0;
    for (std::size_t i = 0; i < samples_; ++i) {
      const bool lacks_target = !y_.empty() && std::isnan(y_[i]) && !options_.target_optional;
      const bool lacks_value = options_.missing == CsvOptions::drop_sample &&
                               std::ranges::any_of(values_, [i](const auto& values) { return std::isnan(values[i]); });
      without_target += lacks_target ? 1 : 0;
      if (!lacks_target && !lacks_value) kept.push_back(i);
    }
    left_out_ = samples_ - kept.size();
    if (left_out_ == 0) return;
    const auto keep = [&](std::vector<double>& values) {
      if (values.empty()) return;
      for (std::size_t i = 0; i < kept.size(); ++i) values[i] = values[kept[i]];
      values.resize(kept.size());
    };
    std::ranges::for_each(values_, keep);
    keep(y_);
    for (const std::size_t i : kept) set.rows.push_back(i + 1);
    notes_.push_back(note_on_left_out(left_out_, without_target, samples_));
  }

  void fill_column(std::size_t j, ColumnEncoding& encoding) {
    const bool lacks = std::ranges::any_of(values_[j], [](double v) { return std::isnan(v); });
    if (lacks && std::ranges::all_of(values_[j], [](double v) { return std::isnan(v); }))
      fail(source_, fmt::format("no sample has a value of {}; drop the column", quoted(encoding.name)), Remedy::drop);
    encoding.fill = fill_of(values_[j], !encoding.levels.empty());
    encoding.indicator = lacks;
  }

  Source source_;
  const CsvOptions& options_;
  Records records_;
  std::optional<Columns> columns_;
  std::optional<Cells> cells_;
  std::optional<Target> target_;
  const char* first_sample_ = nullptr;
  std::vector<std::size_t> place_;  // of each column that is a feature among the features
  std::vector<RawColumn> raw_;
  std::vector<std::vector<double>> values_;
  std::vector<double> y_;
  std::size_t samples_ = 0, left_out_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace

Dataset parse_csv(const std::string& text, std::string_view file, const CsvOptions& options) {
  constexpr std::string_view unfit("\"\n\r");
  if (unfit.find(options.separator) != unfit.npos)
    throw MisuseError(fmt::format("[{}] a quotation mark or the end of a line cannot separate fields", csv_reader));
  if (options.separator == ',' && options.decimal == CsvOptions::comma)
    throw MisuseError(fmt::format("[{}] commas cannot separate fields and decimals both", csv_reader));
  if (ends_lines_with_returns(text)) return CsvParser({csv_reader, file}, with_newlines(text), options).parse();
  return CsvParser({csv_reader, file}, text, options).parse();
}

}  // namespace data

Dataset read_csv(const std::string& path, const CsvOptions& options) {
  return data::parse_csv(data::read_text({data::csv_reader, path}, options.memory_limit), path, options);
}

}  // namespace onestep
