// Folders that are removed with their object, and where real data lie.
#include "support/files.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace onestep::test {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "onestep_test_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder " + pattern);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, std::string_view bytes) const {
  const std::filesystem::path file = path_ / name;
  std::ofstream(file, std::ios::binary) << bytes;
  return file.string();
}

std::string contents_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::filesystem::path repository_file(const std::string& name) { return std::filesystem::path(ONESTEP_SOURCE_DIR) / name; }

std::filesystem::path shared_data(const std::string& name) {
  if (const char* folder = std::getenv("ONESTEP_DATA"); folder != nullptr) return std::filesystem::path(folder) / name;
  return repository_file("..") / "shared" / "data" / name;
}

std::vector<ReferenceProblem> reference_problems() {
  std::ifstream in(shared_data("maros_meszaros/reference_optima.csv"));
  std::string line;
  std::getline(in, line);
  std::vector<ReferenceProblem> all;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string name, n, m;
    std::getline(fields, name, ',');
    std::getline(fields, n, ',');
    std::getline(fields, m, ',');
    const std::string optimum = line.substr(line.rfind(',') + 1);
    const int exponent = std::stoi(optimum.substr(optimum.find('e') + 1));
    all.push_back({name, std::stoll(n), std::stoll(m), std::stod(optimum), std::pow(10.0, exponent - 7)});
  }
  return all;
}

}  // namespace onestep::test
