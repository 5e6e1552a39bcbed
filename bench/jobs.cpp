// Rows of the readers, on files made here; those of fits and hypergradients are in jobs_fit.cpp and jobs_bilevel.cpp.
#include "jobs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

#include "onestep/dataset.h"

namespace onestep::bench {
namespace {

// A file in the temporary folder, gone with this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view content)
      : path_(std::filesystem::temp_directory_path() / fmt::format("onestep_bench_{}", getpid())) {
    std::ofstream out(path_, std::ios::binary);
    out << content;
    out.close();
    if (!out) throw std::runtime_error(fmt::format("cannot write {}", path_.string()));
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// Of the shape of a9a: 14 of 123 features are 1.
std::string sparse_text() {
  std::mt19937_64 random(1);
  std::string text;
  for (int row = 0; row < 32561; ++row) {
    text += random() % 4 == 0 ? "+1" : "-1";
    for (unsigned group = 0; group < 14; ++group) text += fmt::format(" {}:1", 1 + 9 * group - group / 5 + random() % 7);
    text += " \n";
  }
  return text;
}

enum class Format { libsvm, csv };

// Every feature of ijcnn1's 22 as a number, with its six decimals, or with all the digits of a double.
std::string dense_text(Format format, bool all_digits) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> entry(-1, 1);
  std::string text;
  for (int row = 0; row < 20000; ++row) {
    if (format == Format::libsvm) text += row % 10 == 0 ? "1" : "-1";
    for (int feature = 1; feature <= 22; ++feature) {
      if (format == Format::libsvm) text += fmt::format(" {}:", feature);
      text += all_digits ? fmt::format("{}", entry(random)) : fmt::format("{:.6f}", entry(random));
      if (format == Format::csv) text += feature < 22 ? ',' : '\n';
    }
    if (format == Format::libsvm) text += '\n';
  }
  return text;
}

std::string images() {
  std::mt19937_64 random(3);
  std::string bytes{0, 0, 8, 3, 0, 0, 0x27, 0x10, 0, 0, 0, 28, 0, 0, 0, 28};  // 10000 of 28 x 28
  for (int i = 0; i < 10000 * 28 * 28; ++i) bytes += static_cast<char>(random() & 0xff);
  return bytes;
}

void reader_row(Suite& suite, const std::string& row, const std::function<std::string()>& make,
                const std::function<void(const std::string&)>& read, std::optional<Bar> bar) {
  if (!suite.wants(row)) return;
  const std::string content = make();
  const TemporaryFile file(content);
  suite.time(row, Unit::MB_per_s, {.run = [&] { read(file.path()); }, .units = static_cast<double>(content.size()) / 1e6},
             std::nullopt, bar);
}

}  // namespace

void reader_rows(Suite& suite) {
  const auto libsvm = [](const std::string& path) { read_libsvm(path); };
  const auto csv = [](const std::string& path) { read_csv(path); };
  constexpr Bar fast = at_least(150);
  const auto dense = [](Format format, bool all_digits) { return [=] { return dense_text(format, all_digits); }; };
  reader_row(suite, "read_libsvm a9a-like", sparse_text, libsvm, fast);
  reader_row(suite, "read_libsvm dense-like", dense(Format::libsvm, false), libsvm, fast);
  reader_row(suite, "read_libsvm dense-like, all digits", dense(Format::libsvm, true), libsvm, fast);
  reader_row(suite, "read_csv", dense(Format::csv, false), csv, fast);
  reader_row(suite, "read_csv, all digits", dense(Format::csv, true), csv, fast);
  reader_row(
      suite, "read_idx", images, [](const std::string& path) { read_idx(path); }, std::nullopt);
}

void run_jobs(Suite& suite) {
  reader_rows(suite);
  bilevel_rows(suite);
  fit_rows(suite);
}

}  // namespace onestep::bench
