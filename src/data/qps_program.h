// What stands in a QPS file, by place instead of by name, and the dense program made of it.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "data/text.h"
#include "onestep/qps.h"

namespace onestep::data {

/// A row or a column, counted from 0 in the file's order, the N rows among them.
using Index = std::size_t;

struct Row {
  std::string_view name;
  char kind;  ///< N, E, L or G
  std::optional<double> rhs = {}, range = {};
};

struct Column {
  std::string_view name;
  double lower = 0, upper = std::numeric_limits<double>::infinity();
  bool lower_given = false;
};

struct Entry {
  Index row, column;
  double value;
};

/// An entry of Q; its rows are columns of the file.
struct QuadraticEntry {
  Index row, column;
  double value;
  std::size_t line;
};

struct QpsContent {
  std::string_view name;
  bool maximise = false;
  std::optional<Index> objective;
  std::vector<Row> rows;
  std::vector<Column> columns;
  std::vector<Entry> entries;
  std::vector<QuadraticEntry> quadratic;
  bool both_triangles = false;  ///< of Q are among `quadratic`
};

/// Throws FileError when the program of the rows and columns read so far does not fit in the memory.
void check_size(const QpsContent& content, const Source& source, std::size_t memory_limit);

QpsFile make_program(QpsContent content, const Source& source, std::size_t memory_limit);

}  // namespace onestep::data
