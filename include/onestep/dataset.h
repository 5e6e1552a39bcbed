// Samples with features and labels: read from files, their labels as classes or signs, their features standardised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onestep/array.h"
#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// How a column of a CSV file became features, so that the columns of other samples become the same ones. A column of
/// numbers is a feature. A category has a feature for each level but the first, the reference: 1 where the sample has that
/// level, else 0. Where training samples lacked values, a further feature is 1 for samples that lack it.
///
///     ColumnEncoding colour{.name = "colour", .levels = {"blue", "red"}};  // one feature, colour=red
struct ColumnEncoding {
  std::string name;                      ///< of the column; its position from 1 where the file has no names
  std::vector<std::string> levels = {};  ///< of a category, the reference first; empty for numbers
  double fill = 0;         ///< what stands for a missing value: the mean, or the place of the most frequent level
  bool indicator = false;  ///< whether a feature says that the value is missing
  bool unnamed = false;    ///< whether the name is a position: such a column is not looked for in a header
};

/// The names of the features that columns became: `age`, `colour=red`, `age is missing`.
///
///     std::vector<std::string> names = feature_names(read_csv("cars.csv").encoding);
std::vector<std::string> feature_names(const std::vector<ColumnEncoding>& encoding);

/// N samples with n features each: the rows of A and the entries of y belong together.
///
///     Dataset d = read_libsvm("heart_scale");
///     Function loss = traced([&](Expr x) { return sum(softplus(-d.y * matmul(d.A, x))); }, Input{"x", {d.A.shape()[1]}});
struct Dataset {
  Array A;                                 ///< (N, n), the features
  Array y;                                 ///< (N), the labels or the target; empty where it was optional and is not there
  std::vector<std::string> names = {};     ///< of the features, where the file has them; empty otherwise
  std::string target_name = "";            ///< the same of y
  std::vector<std::int64_t> columns = {};  ///< of the features in a CSV file, from 1; empty for other formats
  std::vector<ColumnEncoding> encoding = {};  ///< how the columns of a CSV file became features; empty for other formats
  std::int64_t target_column = 0;             ///< of a CSV file, from 1; 0: none
  std::vector<std::size_t> rows = {};         ///< which sample of the file each is, from 1; empty: all of them are here
  std::size_t in_file = 0;                    ///< samples in a CSV file, those left out included; 0 for other formats
  char separator = '\0';                      ///< of the fields of a CSV file; a zero for other formats
  std::vector<std::string> notes = {};        ///< what the reader guessed and what it made of missing values and texts
  std::vector<std::string> left_out = {};     ///< names of a CSV file's columns that are neither features nor the target
  /// Of the classes 0, 1, … that y then has, ascending, where the file names them; empty otherwise.
  std::vector<std::string> label_names = {};
  /// Features of numbers that may be codes: with leading zeros, as 007, or with more digits than a double keeps.
  std::vector<std::string> codes = {};
  /// Texts in the target that are none of the classes asked for, where the target is optional; y is NaN there.
  std::vector<std::string> unknown_labels = {};
  /// Read from a format that leaves zeros out: other samples of the same kind may come with more features, or fewer.
  bool open_ended = false;
  std::int64_t first_index = 1;  ///< which index the first feature has in LIBSVM's format: 0 or 1
};

/// What a reader may use by default: 4 GiB. It bounds the dense matrices that are returned, and the uncompressed file.
///
///     Dataset d = read_libsvm("a9a", 123, default_memory_limit / 16);
inline constexpr std::size_t default_memory_limit = std::size_t{4} << 30;

// All readers take a file that is plain or compressed by gzip or bzip2 (told by its first bytes), and standard input for
// the path "-". They throw FileError when the file cannot be read or has no sample, when its matrix would need more than
// `memory_limit` bytes, and for everything that is wrong in it, NaN and infinities included, with line and field:
// `[read_libsvm] FILE:3: field 2: "7" is not index:value`.

/// Reads the text format of LIBSVM and SVMlight. A line is a sample: its label, then `index:value` for the features that are
/// not zero, in ascending order; `qid:N` after the label is skipped, `#` begins a comment. The labels are returned as they
/// stand: see signs_of and classes_of.
///
/// An index 0 anywhere in the file means that its indices start at 0; otherwise they start at 1. A file that starts at 0
/// but never uses that feature cannot be told from one that starts at 1, unless `first_index` says it: give what the
/// training set has. The largest index found then gives the number of features, unless `features` says it: a test set may
/// lack the last ones; an index above them is refused.
///
/// The entries are kept sparse while they are read, and the matrix that is returned is dense.
///
///     Dataset train = read_libsvm("a1a");
///     Dataset test = read_libsvm("a1a.t", train.A.shape()[1], default_memory_limit, train.first_index);
Dataset read_libsvm(const std::string& path, std::optional<std::int64_t> features = std::nullopt,
                    std::size_t memory_limit = default_memory_limit, std::optional<std::int64_t> first_index = std::nullopt);

/// The text of a file, decompressed where its first bytes say that gzip or bzip2 made it; standard input for "-". Throws
/// FileError, as the readers do.
///
///     std::string text = read_text("notes.csv.gz");
std::string read_text(const std::string& path, std::size_t memory_limit = default_memory_limit);

/// A text from a file, fit for a terminal: as it is, but for control characters and bytes that are not UTF-8, which become
/// \x00.
///
///     std::cout << printable("K\u00f6ln\n");  // Köln\x0a
std::string printable(std::string_view text);

/// How read_csv reads.
///
///     Dataset d = read_csv("winequality-red.csv", {.target = "quality", .separator = ';'});
struct CsvOptions {
  enum Header { automatic, yes, no };
  enum Decimal { guessed, point, comma };
  enum Missing { refuse, drop_sample, impute };

  /// The column that becomes y: its name in the header, or its position as a number, from 1, or from -1 at the end
  /// backwards. Empty: the last column.
  std::string target = "";
  std::vector<std::string> drop = {};  ///< columns that are left out, each given as the target is
  /// The names that the features and the target have in other samples. Their columns are then found by these names, whatever
  /// their order, and all others are left out; target and drop only matter where there is no header. Empty: not given.
  std::vector<std::string> names = {};
  std::string target_name = "";
  /// The classes that the target may name, and their order: those of other samples. Empty: those found.
  std::vector<std::string> label_names = {};
  /// Whether the first line has names. Automatic: it has when one of its fields is neither a number nor missing, or none is
  /// a number. It has not where its texts are found again below, or where it has numbers that are no count of the columns
  /// and the next line has texts in the same columns. A line of numbers only has names when they are whole, count up and do
  /// not look like the lines below; where that is not clear it is refused, whatever target and drop are. A line such as
  /// 150,4,setosa,versicolor,virginica above 150 lines of 5 fields, as scikit-learn writes it, is skipped.
  Header header = automatic;
  /// None given: that of a first line `sep=;`, else the first of tab, semicolon and comma that each of the first lines has
  /// as often, else the one that the first line has most of. A space stands for one or several.
  char separator = '\0';
  /// What stands before the decimals. Guessed: a comma where fields are separated by something else and are numbers so.
  Decimal decimal = guessed;
  /// What is done about missing values of features: refused; the sample left out; or a number replaced by the mean of its
  /// column, with a feature that says so. A sample whose target is missing is refused, or left out.
  Missing missing = refuse;
  /// The texts, or numbers as they are written, that say that a value is missing, beside an empty field. Empty: not given,
  /// and the words that read_csv has for it.
  std::vector<std::string> missing_texts = {};
  /// Whether texts make a column a category. Columns of which most are numbers are refused all the same, as are dates,
  /// identifiers (more than half as many levels as samples) and columns with more than 100 levels.
  bool categories = false;
  /// Columns that are categories even if they have numbers, each given as the target is; `COLUMN=LEVEL` makes that level the
  /// reference, which is else the first.
  std::vector<std::string> category = {};
  /// How columns of other samples became features: those of these samples become the same. A level that is not among theirs
  /// is refused. Empty: not given. It takes the place of `names`.
  std::vector<ColumnEncoding> encoding = {};
  /// For prediction: y is empty where there is no such column, NaN where a value is missing or, in a target of texts, none
  /// of label_names: those are the unknown_labels.
  bool target_optional = false;
  std::size_t memory_limit = default_memory_limit;
};

/// Reads a table of numbers as text: a line is a sample, one column is the target, the others are the features. Fields may
/// be quoted, with "" for a quotation mark and with separators and ends of lines within. Empty lines are skipped.
///
/// A target that has text in it names classes: y counts them from 0 in the ascending order of their names, label_names. A
/// text among numbers is taken for a mistake and refused, as are more than 100 names. Up to 100 numbers that say more than
/// their value, such as 007, are names, too. Names and levels are compared as they are written: 1 is not 1.0.
///
/// Names stand for one column each: a header that has one twice is refused, unless the columns are dropped.
///
/// A field that is empty or says NA, N/A, #N/A, NaN, null, missing, None, ? or - is missing: it is refused with line and
/// column, as are rows of another length and features that are not numbers. `missing`, `missing_texts` and `categories` say
/// otherwise.
///
///     Dataset last = read_csv("housing.csv");
///     Dataset first = read_csv("housing.csv.gz", {.target = "1", .header = CsvOptions::no});
///     Dataset iris = read_csv("iris.csv", {.target = "species", .drop = {"id"}});
///     Dataset others = read_csv("iris2.csv", {.names = iris.names, .target_name = "species",
///                                             .label_names = iris.label_names});
Dataset read_csv(const std::string& path, const CsvOptions& options = {});

/// Reads the binary format of MNIST: numbers of one type (bytes, big-endian integers, floats or doubles) in an array of any
/// rank. Rank 1 gives (N), a higher rank (N, the product of the other sizes): an image is a row.
///
///     Array labels = read_idx("train-labels-idx1-ubyte.gz");
Array read_idx(const std::string& path, std::size_t memory_limit = default_memory_limit);
/// Images and their labels, which have to be as many.
///
///     Dataset d = read_idx("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz");
Dataset read_idx(const std::string& images, const std::string& labels, std::size_t memory_limit = default_memory_limit);

/// What read_dataset may be told, each for the formats it concerns.
///
///     Dataset train = read_dataset("train.csv", {.target = "price"});
///     Dataset test = read_dataset("test.csv", {.features = train.A.shape()[1], .target = "price"});
struct DatasetOptions {
  std::optional<std::int64_t> features =
      std::nullopt;  ///< how many there have to be; LIBSVM's format may lack the last ones
  std::optional<std::int64_t> first_index = std::nullopt;  ///< where LIBSVM's indices start, see read_libsvm
  std::string target = "";                                 ///< the column of a CSV file, see CsvOptions
  std::vector<std::string> drop = {};                      ///< the same
  std::vector<std::string> names = {};                     ///< the same
  std::string target_name = "";                            ///< the same
  std::vector<std::string> label_names = {};               ///< the same
  CsvOptions::Header header = CsvOptions::automatic;       ///< the same
  char separator = '\0';                                   ///< the same
  CsvOptions::Decimal decimal = CsvOptions::guessed;       ///< the same
  CsvOptions::Missing missing = CsvOptions::refuse;        ///< the same
  std::vector<std::string> missing_texts = {};             ///< the same
  bool categories = false;                                 ///< the same
  std::vector<std::string> category = {};                  ///< the same
  std::vector<ColumnEncoding> encoding = {};               ///< the same
  bool target_optional = false;                            ///< the same
  /// The labels' file for images in IDX format. Empty: named as the images' with `labels` for `images` and `idx1` for
  /// `idx3`.
  std::string labels = "";
  std::size_t memory_limit = default_memory_limit;
};

/// Reads any of these formats. IDX is told by its first bytes. CSV is what is named .csv or .tsv (before .gz or .bz2), or,
/// under a name that does not say, what has a comma or a semicolon and no colon in its first line, and whatever `separator`
/// is given for. All else is LIBSVM's format.
///
///     Dataset d = read_dataset("heart_scale");
Dataset read_dataset(const std::string& path, const DatasetOptions& options = {});

/// Labels as classes.
///
///     Classes c = classes_of(read_idx("train-labels-idx1-ubyte.gz"));
///     std::cout << c.values.size() << " classes\n";
struct Classes {
  std::vector<double> values;  ///< the labels found, ascending
  Array index;                 ///< (N): which of them each sample has, from 0
};

/// The classes among the labels y. Throws MisuseError when a label is not a whole number, or when there are more than
/// `at_most` classes: y is then a quantity, for regression.
///
///     Classes c = classes_of(y);
///     bool binary = c.values.size() == 2;
Classes classes_of(const Array& y, std::size_t at_most = 1000);
/// The labels y of other samples, numbered by classes found before. Throws MisuseError for a label that is not among
/// `values`.
///
///     Classes train = classes_of(read_idx("train-labels-idx1-ubyte.gz"));
///     Array test = class_index(read_idx("t10k-labels-idx1-ubyte.gz"), train.values);
Array class_index(const Array& y, const std::vector<double>& values);

/// Two labels, whichever they are, as -1 and +1; the larger is +1. Throws MisuseError, with the labels found, when there are
/// not two.
///
///     Dataset d = read_libsvm("breast-cancer");
///     d.y = signs_of(d.y);  // 2 and 4 become -1 and 1
Array signs_of(const Array& y);
/// The same for other samples, given the two labels, ascending: a validation set may have only one of them. Throws
/// MisuseError for a third.
///
///     Dataset train = read_libsvm("a1a"), valid = read_libsvm("a1a.t", train.A.shape()[1]);
///     valid.y = signs_of(valid.y, classes_of(train.y).values);
Array signs_of(const Array& y, const std::vector<double>& labels);

/// The means and standard deviations (with 1/N) of features; 1 for the deviation of a constant one.
///
///     Scaling s = standardisation(A);
///     std::cout << "means " << s.mean << ", deviations " << s.scale << '\n';
struct Scaling {
  Array mean;   ///< (n)
  Array scale;  ///< (n), positive
};

/// Throws MisuseError when A is not a matrix with at least one row of finite numbers.
///
///     Scaling s = standardisation(A);
Scaling standardisation(const Array& A);

/// (A - mean) / scale, column by column: of the samples the scaling is from, or of others. Throws MisuseError when the
/// number of features is another.
///
///     Dataset train = read_libsvm("a1a"), test = read_libsvm("a1a.t", train.A.shape()[1]);
///     const Scaling s = standardisation(train.A);
///     train.A = scaled(train.A, s), test.A = scaled(test.A, s);
Array scaled(const Array& A, const Scaling& scaling);

/// Coefficients of a linear model: its prediction is Ax + intercept.
///
///     LinearModel m{.x = {0.5, -1.0}, .intercept = 2.0};
struct LinearModel {
  Array x;          ///< (n), or (n, K) for K predictions
  Array intercept;  ///< a number, or (K)
};

/// The model for the features as they were that predicts the same as `model` does for the scaled features. It is linear in
/// the coefficients, so a covariance C of (x, intercept) becomes T C Tᵀ where T is this map, column by column.
///
///     const Scaling s = standardisation(A);
///     LinearModel raw = unscaled({.x = x, .intercept = 0.3}, s);  // matmul(A, raw.x) + raw.intercept
LinearModel unscaled(const LinearModel& model, const Scaling& scaling);

}  // namespace onestep
ONESTEP_EXPORT_END
