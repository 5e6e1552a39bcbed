// What the jobs learn from: samples read from files, made up, or split off, in the form that models take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/command_line.h"
#include "onestep/dataset.h"
#include "onestep/error.h"

namespace onestep::app::jobs {

enum class Loss : std::uint8_t { logistic, ridge, softmax };
const char* name_of(Loss loss);

/// Options of every job.
struct JobOptions : CommonOptions {
  std::string file, valid, test, target, loss, checkpoint;
  std::string header = "auto", separator = "auto", decimal = "auto", missing = "refuse";
  std::vector<std::string> drop, category, missing_texts;
  std::optional<double> l2_asked;  ///< none: as the job sees fit
  double split = 0.2, memory = 4;  ///< memory: GiB
  bool demo = false, standardise = false;

  double l2() const { return l2_asked.value_or(1); }
};

/// How files are read, as the options say.
DatasetOptions reading_options(const JobOptions& options);
/// The rows in the help of how a CSV file is written.
std::vector<Option> csv_options(JobOptions& options);
/// What is wrong with a file, with the options of the verb that would help in place of the library's.
std::string in_words_of_the_command(const FileError& wrong, std::string_view verb);
/// The first names of a list, and how many more there are.
std::string some_names(const std::vector<std::string>& names);
/// How reports call a file.
std::string short_name(const std::string& file);

/// Their rows in the help: where the samples are and what is made of them. Not every job has validation or test samples.
std::vector<Option> sample_options(JobOptions& options, bool with_validation);

/// Samples in the form that models take.
struct Samples {
  Array A;                        ///< (N, n + 1): the features, and a column of ones behind them
  Array y;                        ///< (N): signs for logistic, targets for ridge, classes counted from 0 for softmax
  Array Y;                        ///< (N, K) for softmax: one 1 in each row
  std::vector<std::size_t> rows;  ///< which sample of its file each is, from 1

  std::int64_t count() const { return A.shape()[0]; }
};
/// The samples of both, in this order.
Samples stacked(const Samples& first, const Samples& second);

/// All samples of a job.
struct JobData {
  std::string name;  ///< of the file, or what was made up
  Loss loss = Loss::logistic;
  Samples train;
  std::optional<Samples> valid, test;
  std::vector<std::string> features;          ///< their names, or their numbers in the file
  std::vector<double> labels;                 ///< ascending, of classification
  std::vector<std::string> label_names = {};  ///< what they stand for, where that is known
  std::vector<std::string> notes = {};        ///< what was made of the samples that people may not expect
  std::optional<Scaling> scaling;             ///< of the features and the column of ones, when they were standardised
  /// For each feature the factor of the penalty that makes the problem of scaled features the one of features as they were;
  /// none: the penalty is for the features as they are here.
  std::optional<Array> penalty_factors = {};
  bool penalised = true;               ///< false: the penalty is 0
  bool standardised = false;           ///< whether that was asked for; without a penalty it is done for accuracy
  std::vector<std::size_t> kept = {};  ///< the places of the features among all of the file; empty: all of them
  /// Features that were left out, with the reason: "is constant".
  std::vector<std::pair<std::string, std::string>> left_out = {};
  // What other samples of the kind are read with.
  std::string target_name = {};
  std::int64_t target_column = 0, first_index = 1;
  bool has_names = false;
  char separator = '\0';  ///< of the fields of a CSV file
  std::vector<ColumnEncoding> encoding = {};
  std::int64_t image_side = 0;  ///< of square images; 0: features are no pixels
  double memory_needed = 0;     ///< the most bytes that the job is expected to need
  std::size_t in_file = 0;      ///< samples of the training file, those split off for validation included

  /// Which of the labels a sample's y stands for (the first for ridge, which has none), and the other way round.
  std::size_t class_of(double y) const;
  double y_of(std::size_t k) const;
  /// The label or target that a sample's y stands for, as its file has it; and for people.
  double label(double y) const;
  std::string label_text(double y) const;

  std::int64_t n() const { return train.A.shape()[1] - 1; }
  /// Tells these samples from others: checkpoints of other data are refused.
  std::string identity() const;
};

/// Reads, splits and prepares them. Throws Misuse or Error for what cannot be used.
JobData load(const JobOptions& options, bool with_validation, Progress& progress);

/// Leaves a share of each class of the training samples for validation. Throws Misuse when that leaves none of a class.
void split_off(JobData& job, double share, std::uint64_t seed);

/// The places of the training samples, class by class and in an order that the seed decides; all in one where there are no
/// classes.
std::vector<std::vector<std::size_t>> shuffled_classes(const JobData& job, std::uint64_t seed);

/// The class of each of the samples, by its place among the labels; 0 throughout for ridge.
std::vector<std::size_t> class_of_each(const JobData& job, const Samples& samples);

/// Means and deviations of the features, these no smaller than the least; the column of ones stays as it is.
Scaling standardisation_with_ones(const Array& A, double least_scale = 0);

/// A data set in the form that the model of the job takes: its labels, features and scaling. Without labels y is empty.
Samples samples_of(const Dataset& d, const JobData& job);

/// Some of the samples, by their places.
Samples some_of(const Samples& all, const std::vector<std::size_t>& places);

/// A row for each, with a 1 in the column that it names.
Array one_hot(const std::vector<std::size_t>& columns, std::size_t count);

/// The numbers from 0 to count - 1 in an order that the seed decides, the same everywhere.
std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed);

}  // namespace onestep::app::jobs
