// The readers of samples and programs. Each returns a dict of what a file has, which python/onestep/_data.py makes a class
// of.
#include <nanobind/stl/optional.h>
#include <onestep/data.h>

#include "arrays.h"
#include "gil.h"

namespace onestep::python {
namespace {

using Strings = std::vector<std::string>;

nb::dict dict_of(const ColumnEncoding& column) {
  nb::dict parts;
  parts["name"] = column.name;
  parts["levels"] = column.levels;
  parts["fill"] = column.fill;
  parts["indicator"] = column.indicator;
  parts["unnamed"] = column.unnamed;
  return parts;
}

nb::dict dict_of(const Dataset& d) {
  nb::dict parts;
  parts["A"] = numpy_of(d.A);
  parts["y"] = numpy_of(d.y);
  parts["names"] = d.names;
  parts["target_name"] = d.target_name;
  parts["columns"] = d.columns;
  nb::list encoding;
  for (const ColumnEncoding& column : d.encoding) encoding.append(dict_of(column));
  parts["encoding"] = encoding;
  parts["target_column"] = d.target_column;
  parts["rows"] = d.rows;
  parts["in_file"] = d.in_file;
  parts["notes"] = d.notes;
  parts["left_out"] = d.left_out;
  parts["label_names"] = d.label_names;
  parts["codes"] = d.codes;
  parts["unknown_labels"] = d.unknown_labels;
  parts["open_ended"] = d.open_ended;
  parts["first_index"] = d.first_index;
  return parts;
}

std::vector<ColumnEncoding> encoding_of(const nb::list& columns) {
  std::vector<ColumnEncoding> all;
  for (const nb::handle column : columns)
    all.push_back({.name = nb::cast<std::string>(column["name"]),
                   .levels = nb::cast<Strings>(column["levels"]),
                   .fill = nb::cast<double>(column["fill"]),
                   .indicator = nb::cast<bool>(column["indicator"]),
                   .unnamed = nb::cast<bool>(column["unnamed"])});
  return all;
}

// The options that CSV files and files of any format have in common, all of which are there.
template <class Options> Options options_of(const nb::dict& given) {
  Options options;
  options.target = nb::cast<std::string>(given["target"]);
  options.drop = nb::cast<Strings>(given["drop"]);
  options.names = nb::cast<Strings>(given["names"]);
  options.target_name = nb::cast<std::string>(given["target_name"]);
  options.label_names = nb::cast<Strings>(given["label_names"]);
  const auto header = nb::cast<std::optional<bool>>(given["header"]);
  options.header = !header ? CsvOptions::automatic : *header ? CsvOptions::yes : CsvOptions::no;
  const auto separator = nb::cast<std::string>(given["separator"]);
  options.separator = separator.empty() ? '\0' : separator[0];
  const auto decimal = nb::cast<std::string>(given["decimal"]);
  options.decimal = decimal == "." ? CsvOptions::point : decimal == "," ? CsvOptions::comma : CsvOptions::guessed;
  const auto missing = nb::cast<std::string>(given["missing"]);
  options.missing = missing == "drop"     ? CsvOptions::drop_sample
                    : missing == "impute" ? CsvOptions::impute
                                          : CsvOptions::refuse;
  options.missing_texts = nb::cast<Strings>(given["missing_texts"]);
  options.categories = nb::cast<bool>(given["categories"]);
  options.category = nb::cast<Strings>(given["category"]);
  options.encoding = encoding_of(nb::cast<nb::list>(given["encoding"]));
  options.target_optional = nb::cast<bool>(given["target_optional"]);
  options.memory_limit = nb::cast<std::size_t>(given["memory_limit"]);
  return options;
}

// Reads without the GIL.
template <class Read> auto reading(const Read& read) {
  const WithoutGil no_gil;
  return read();
}

nb::dict qps(const std::string& path, std::size_t memory_limit) {
  const QpsFile file = reading([&] { return read_qps(path, memory_limit); });
  nb::dict problem;
  const QuadraticProgram& p = file.problem;
  problem["Q"] = numpy_of(p.Q);
  problem["q"] = numpy_of(p.q);
  problem["A"] = numpy_of(p.A);
  problem["b"] = numpy_of(p.b);
  problem["G"] = numpy_of(p.G);
  problem["l"] = numpy_of(p.l);
  problem["u"] = numpy_of(p.u);
  problem["lo"] = numpy_of(p.lo);
  problem["hi"] = numpy_of(p.hi);
  problem["constant"] = p.constant;
  nb::dict parts;
  parts["name"] = file.name;
  parts["problem"] = problem;
  parts["maximise"] = file.maximise;
  parts["columns"] = file.columns;
  parts["equalities"] = file.equalities;
  parts["inequalities"] = file.inequalities;
  return parts;
}

}  // namespace

void bind_data(nb::module_& m) {
  m.attr("default_memory_limit") = default_memory_limit;
  m.def(
      "libsvm_parts",
      [](const std::string& path, std::optional<std::int64_t> features, std::optional<std::int64_t> first_index,
         std::size_t memory_limit) {
        return dict_of(reading([&] { return read_libsvm(path, features, memory_limit, first_index); }));
      },
      "path"_a, "features"_a.none(), "first_index"_a.none(), "memory_limit"_a,
      nb::sig("def libsvm_parts(path: str, features: int | None, first_index: int | None, memory_limit: int) -> dict[str, "
              "typing.Any]"),
      "What read_libsvm makes a Dataset of.");
  m.def(
      "csv_parts",
      [](const std::string& path, const nb::dict& given) {
        const auto options = options_of<CsvOptions>(given);
        return dict_of(reading([&] { return read_csv(path, options); }));
      },
      "path"_a, "options"_a, nb::sig("def csv_parts(path: str, options: dict[str, typing.Any]) -> dict[str, typing.Any]"),
      "What read_csv makes a Dataset of.");
  m.def(
      "dataset_parts",
      [](const std::string& path, const nb::dict& given) {
        auto options = options_of<DatasetOptions>(given);
        options.features = nb::cast<std::optional<std::int64_t>>(given["features"]);
        options.first_index = nb::cast<std::optional<std::int64_t>>(given["first_index"]);
        options.labels = nb::cast<std::string>(given["labels"]);
        return dict_of(reading([&] { return read_dataset(path, options); }));
      },
      "path"_a, "options"_a,
      nb::sig("def dataset_parts(path: str, options: dict[str, typing.Any]) -> dict[str, typing.Any]"),
      "What read_dataset makes a Dataset of.");
  m.def(
      "idx_array",
      [](const std::string& path, std::size_t memory_limit) {
        return numpy_of(reading([&] { return read_idx(path, memory_limit); }));
      },
      "path"_a, "memory_limit"_a,
      nb::sig("def idx_array(path: str, memory_limit: int) -> numpy.typing.NDArray[numpy.float64]"),
      "What read_idx returns of one file.");
  m.def(
      "idx_parts",
      [](const std::string& images, const std::string& labels, std::size_t memory_limit) {
        return dict_of(reading([&] { return read_idx(images, labels, memory_limit); }));
      },
      "images"_a, "labels"_a, "memory_limit"_a,
      nb::sig("def idx_parts(images: str, labels: str, memory_limit: int) -> dict[str, typing.Any]"),
      "What read_idx makes a Dataset of.");
  m.def("qps_parts", qps, "path"_a, "memory_limit"_a,
        nb::sig("def qps_parts(path: str, memory_limit: int) -> dict[str, typing.Any]"),
        "What read_qps makes a QpsFile of.");
  m.def(
      "text_of_file",
      [](const std::string& path, std::size_t memory_limit) {
        return reading([&] { return read_text(path, memory_limit); });
      },
      "path"_a, "memory_limit"_a, "The text of a file, which may be compressed by gzip or bzip2.");
  m.def(
      "signs_of",
      [](nb::handle y, const std::optional<std::vector<double>>& labels) {
        const Array of = array_of(y);
        return numpy_of(labels ? signs_of(of, *labels) : signs_of(of));
      },
      "y"_a, "labels"_a = nb::none(),
      nb::sig("def signs_of(y: numpy.typing.ArrayLike, labels: collections.abc.Sequence[float] | None = None) -> "
              "numpy.typing.NDArray[numpy.float64]"),
      "Two labels, whichever they are, as -1 and +1: the larger is +1. `labels` are those of other samples, ascending. It "
      "is an error if there are not two.\n\n    y = onestep.signs_of(data.y)");
}

}  // namespace onestep::python
