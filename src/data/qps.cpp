// The sections of QPS and MPS files, line by line.
#include "onestep/qps.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "data/parse.h"
#include "data/qps_lines.h"
#include "data/qps_program.h"
#include "data/text.h"

namespace onestep {
namespace data {

namespace {

constexpr std::string_view reader = "read_qps";
constexpr double infinity = std::numeric_limits<double>::infinity();

// A short line costs much more memory as a name or an entry than as text.
constexpr std::size_t text_share = 16;

// Names and where they stand. A sorted map: no choice of names makes it slow.
class Names {
 public:
  /// False when the name is there already.
  bool add(std::string_view name) { return index_.try_emplace(name, index_.size()).second; }
  std::optional<Index> find(std::string_view name) const {
    const auto at = index_.find(name);
    return at == index_.end() ? std::nullopt : std::optional(at->second);
  }

 private:
  std::map<std::string_view, Index> index_;
};

bool is_quadratic(Section section) { return section == Section::quadobj || section == Section::qmatrix; }

class QpsParser {
 public:
  QpsParser(const Source& source, std::string_view text, std::size_t memory_limit)
      : source_(source), lines_(text), split_(how_to_split(text)), memory_limit_(memory_limit) {}

  QpsFile parse() {
    bool ended = false;
    for (std::string_view line; !ended && lines_.next(line);) {
      if (is_comment(line)) continue;
      if (is_header(line))
        ended = read_header(line);
      else
        read_data(split(line));
    }
    if (!ended) fail(source_, "ends without ENDATA; is the file whole?");
    return make_program(std::move(content_), source_, memory_limit_);
  }

 private:
  [[noreturn]] void wrong(std::string_view what) const { fail(source_, lines_.number(), what); }
  [[noreturn]] void wrong(std::size_t field, std::string_view what) const {
    fail(source_, lines_.number(), field + 1, what);
  }

  double number(const Fields& fields, std::size_t i) const {
    const std::optional<double> value = parse_number(fields[i]);
    if (!value) wrong(i, fmt::format("{} is not a number", quoted(fields[i])));
    return *value;
  }
  double coefficient(const Fields& fields, std::size_t i) const {
    const double value = number(fields, i);
    if (!std::isfinite(value)) wrong(i, fmt::format("{} is not finite", quoted(fields[i])));
    return value;
  }
  double limit(const Fields& fields, std::size_t i) const {
    constexpr double practically_infinite = 1e20;
    const double value = number(fields, i);
    return std::fabs(value) >= practically_infinite ? std::copysign(infinity, value) : value;
  }
  Index row(const Fields& fields, std::size_t i) const {
    const std::optional<Index> found = row_names_.find(fields[i]);
    if (!found) wrong(i, fmt::format("there is no row {}", quoted(fields[i])));
    return *found;
  }
  Index column(const Fields& fields, std::size_t i) const {
    const std::optional<Index> found = column_names_.find(fields[i]);
    if (!found) wrong(i, fmt::format("there is no column {}", quoted(fields[i])));
    return *found;
  }

  Fields split(std::string_view line) const {
    if (split_ == split_by_columns && !keeps_to_columns(line))
      wrong("text between the columns 2-3, 5-12, 15-22, 25-36, 40-47 and 50-61; names with blanks need the fixed format");
    return split_(line);
  }

  // Returns whether the file ends here.
  bool read_header(std::string_view line) {
    std::string_view rest = line;
    const std::string_view word = next_word(rest);
    if (word == "ENDATA") return true;
    if (word == "NAME") {
      content_.name = next_word(rest);
      section_ = Section::none;
      return false;
    }
    const std::optional<Section> section = section_of(word);
    if (!section && word == "QCMATRIX")
      wrong("quadratic constraints (QCMATRIX) are not supported, only a quadratic objective");
    if (!section)
      wrong(
          fmt::format("{} is not a section (NAME, OBJSENSE, ROWS, COLUMNS, RHS, RANGES, BOUNDS, QUADOBJ, QSECTION, QMATRIX, "
                      "ENDATA); data lines begin with a blank",
                      quoted(word)));
    for (const Section seen : seen_)
      if (seen == *section || (is_quadratic(seen) && is_quadratic(*section)))
        wrong(fmt::format("a second section {}", word));
    if (*section == Section::qmatrix) content_.both_triangles = true;
    seen_.push_back(*section);
    section_ = *section;
    const std::string_view argument = next_word(rest);
    if (section_ == Section::objsense && !argument.empty()) read_sense(argument, 1);
    if (word == "QSECTION" && !argument.empty()) {
      const std::optional<Index> of = row_names_.find(argument);
      if (!of || of != content_.objective)
        wrong(1, fmt::format("{} is not the objective row; quadratic constraints are not supported", quoted(argument)));
    }
    return false;
  }

  void read_data(const Fields& fields) {
    switch (section_) {
      case Section::none: wrong("a data line before the first section"); break;
      case Section::objsense: read_sense(fields[0], 0); break;
      case Section::rows: read_row(fields); break;
      case Section::columns: read_column(fields); break;
      case Section::rhs: read_rhs(fields); break;
      case Section::ranges: read_range(fields); break;
      case Section::bounds: read_bound(fields); break;
      case Section::quadobj:
      case Section::qmatrix: read_quadratic(fields); break;
    }
  }

  void read_sense(std::string_view word, std::size_t field) {
    std::string upper(word.substr(0, 3));
    for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    if (upper != "MAX" && upper != "MIN") wrong(field, fmt::format("{} is neither MIN nor MAX", quoted(word)));
    content_.maximise = upper == "MAX";
  }

  void read_row(const Fields& fields) {
    if (fields.count != 2) wrong(fmt::format("{} fields; a row has a type (N, E, L or G) and a name", fields.count));
    const std::string_view kind = fields[0];
    if (kind != "N" && kind != "E" && kind != "L" && kind != "G")
      wrong(0, fmt::format("{} is not a type of row; there are N, E, L and G", quoted(kind)));
    if (!row_names_.add(fields[1])) wrong(1, fmt::format("a second row {}", quoted(fields[1])));
    if (kind == "N" && !content_.objective) content_.objective = content_.rows.size();
    content_.rows.push_back({fields[1], kind.front()});
    last_column_in_row_.push_back(none);
  }

  // The name and number pairs of a line, from a field on: calls entry(field of the name).
  template <class EntryAt>
  void for_each_pair(const Fields& fields, std::size_t first, std::string_view form, const EntryAt& entry) const {
    if (fields.count != first + 2 && fields.count != first + 4)
      wrong(fmt::format("{} fields; a line here has {}, and the last two perhaps again", fields.count, form));
    for (std::size_t i = first; i < fields.count; i += 2) entry(i);
  }

  void read_column(const Fields& fields) {
    if (is_marker(fields))
      wrong("integer variables (MARKER) are not supported; without the MARKER lines the file is the continuous relaxation");
    for_each_pair(fields, 1, "a column, a row and a number", [&](std::size_t i) {
      if (content_.columns.empty() || content_.columns.back().name != fields[0]) {
        if (!column_names_.add(fields[0]))
          wrong(0, fmt::format("column {} again; its lines have to follow each other", quoted(fields[0])));
        content_.columns.push_back({.name = fields[0]});
        check_size(content_, source_, memory_limit_);
      }
      const Index in = row(fields, i), j = content_.columns.size() - 1;
      if (last_column_in_row_[in] == j)
        wrong(i, fmt::format("a second entry of column {} in row {}", quoted(fields[0]), quoted(fields[i])));
      last_column_in_row_[in] = j;
      content_.entries.push_back({in, j, coefficient(fields, i + 1)});
    });
  }

  // Several vectors may stand in RHS, RANGES and BOUNDS; the first one counts. Its name may be missing altogether.
  static bool is_of_first_vector(std::optional<std::string_view>& first, std::string_view name) {
    if (!first) first = name;
    return *first == name;
  }

  void read_rhs(const Fields& fields) {
    const std::size_t first = fields.count % 2;
    if (!is_of_first_vector(rhs_vector_, first == 1 ? fields[0] : "")) return;
    for_each_pair(fields, first, "perhaps the name of the vector, a row and a number", [&](std::size_t i) {
      Row& r = content_.rows[row(fields, i)];
      if (r.rhs) wrong(i, fmt::format("a second right-hand side of row {}", quoted(r.name)));
      const double value = r.kind == 'N' ? coefficient(fields, i + 1) : limit(fields, i + 1);
      const bool satisfiable = r.kind == 'L' ? value > -infinity : r.kind == 'G' ? value < infinity : std::isfinite(value);
      if (!satisfiable)
        wrong(i + 1, fmt::format("{} cannot be the right-hand side of the {} row {}", value, r.kind, quoted(r.name)));
      r.rhs = value;
    });
  }

  void read_range(const Fields& fields) {
    const std::size_t first = fields.count % 2;
    if (!is_of_first_vector(range_vector_, first == 1 ? fields[0] : "")) return;
    for_each_pair(fields, first, "perhaps the name of the vector, a row and a number", [&](std::size_t i) {
      Row& r = content_.rows[row(fields, i)];
      if (r.range) wrong(i, fmt::format("a second range of row {}", quoted(r.name)));
      r.range = limit(fields, i + 1);
    });
  }

  void read_bound(const Fields& fields) {
    const std::optional<BoundType> type = bound_type(fields[0]);
    if (!type) refuse_bound_type(fields);
    const std::size_t needed = has_value(*type) ? 3 : 2;
    // Without the vector's name a line is one field shorter; a type that needs no value may have one that says nothing.
    bool named = fields.count > needed;
    if (!has_value(*type) && fields.count == 3) named = !column_names_.find(fields[1]) || column_names_.find(fields[2]);
    if (fields.count < needed || fields.count > 4)
      wrong(fmt::format("{} fields; a bound has a type, perhaps the name of the vector, a column{}", fields.count,
                        has_value(*type) ? " and a number" : ""));
    if (!is_of_first_vector(bound_vector_, named ? fields[1] : "")) return;
    const std::size_t at = named ? 2 : 1;
    Column& c = content_.columns[column(fields, at)];
    const double value = has_value(*type) ? limit(fields, at + 1) : 0.0;
    switch (*type) {
      case BoundType::lower: c.lower = value; break;
      case BoundType::upper:
        c.upper = value;
        if (value < 0 && !c.lower_given) c.lower = -infinity;
        break;
      case BoundType::fixed: c.lower = c.upper = value; break;
      case BoundType::free: c.lower = -infinity, c.upper = infinity; break;
      case BoundType::minus_infinity: c.lower = -infinity; break;
      case BoundType::plus_infinity: c.upper = infinity; break;
    }
    if (*type != BoundType::upper && *type != BoundType::plus_infinity) c.lower_given = true;
    if (c.lower == infinity || c.upper == -infinity)
      wrong(at + 1, fmt::format("{} cannot be the {} bound of column {}", value, fields[0], quoted(c.name)));
  }

  [[noreturn]] void refuse_bound_type(const Fields& fields) const {
    for (const char* integer : {"BV", "LI", "UI", "SC", "SI"})
      if (fields[0] == integer)
        wrong(0, fmt::format("integer and semicontinuous variables ({}) are not supported; use LO, UP, FX, FR, MI or PL",
                             integer));
    wrong(0, fmt::format("{} is not a type of bound; there are LO, UP, FX, FR, MI and PL", quoted(fields[0])));
  }

  void read_quadratic(const Fields& fields) {
    for_each_pair(fields, 1, "two columns and a number", [&](std::size_t i) {
      content_.quadratic.push_back({column(fields, 0), column(fields, i), coefficient(fields, i + 1), lines_.number()});
    });
  }

  static constexpr Index none = std::numeric_limits<Index>::max();

  Source source_;
  Lines lines_;
  Splitter* split_;
  std::size_t memory_limit_;

  QpsContent content_;
  Section section_ = Section::none;
  std::vector<Section> seen_;
  std::optional<std::string_view> rhs_vector_, range_vector_, bound_vector_;
  Names row_names_, column_names_;
  std::vector<Index> last_column_in_row_;
};

}  // namespace

QpsFile parse_qps(std::string bytes, std::string_view file, std::size_t memory_limit) {
  const Source source{reader, file};
  const std::string text = with_newlines(decompress(source, std::move(bytes), memory_limit / text_share));
  return QpsParser(source, text, memory_limit).parse();
}

}  // namespace data

QpsFile read_qps(const std::string& path, std::size_t memory_limit) {
  return data::parse_qps(data::read_bytes({data::reader, path}, memory_limit / data::text_share), path, memory_limit);
}

}  // namespace onestep
