// Reads real sets, or makes others of the same shape.
#include "samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "onestep/dataset.h"

namespace onestep::bench {
namespace {

using std::filesystem::path;

path shared_file(const std::string& name) {
  const char* const folder = std::getenv("ONESTEP_DATA");
  return path(folder != nullptr ? folder : "../shared/data") / "classification" / name;
}

path image_file(const std::string& name) { return path("/usr/share/datasets/fashion-mnist") / name; }

bool is_there(const std::string& which) {
  if (which == "a9a") return exists(shared_file("a9a")) && exists(shared_file("a9a.t"));
  if (which == "ijcnn1") return exists(shared_file("ijcnn1.trn.bz2"));
  if (which == "Fashion-MNIST") return exists(image_file("t10k-images-idx3-ubyte.gz"));
  return true;
}

Samples with_ones(const Array& A, const Array& y, double scale = 1) {
  const auto N = static_cast<std::size_t>(A.shape()[0]), n = static_cast<std::size_t>(A.shape()[1]);
  Samples samples{N, n + 1, std::vector<double>(N * (n + 1), 1.0), {y.values().begin(), y.values().end()}};
  for (std::size_t i = 0; i < N; ++i)
    for (std::size_t j = 0; j < n; ++j) samples.A[i * (n + 1) + j] = scale * A.values()[i * n + j];
  return samples;
}

Samples made(std::size_t N, std::size_t n) {
  const Logistic data = logistic_data(N, n);
  return with_ones(matrix(data.A, N, n), Array::view(data.y));
}

Samples read(const path& file, std::int64_t features) {
  const Dataset d = read_libsvm(file.string(), features);
  return with_ones(d.A, signs_of(d.y));
}

// The first `count` samples, and the others.
std::pair<Samples, Samples> split(const Samples& all, std::size_t count) {
  const auto at = [](const std::vector<double>& values, std::size_t i) {
    return values.begin() + static_cast<std::ptrdiff_t>(i);
  };
  return {{count, all.n, {all.A.begin(), at(all.A, count * all.n)}, {all.y.begin(), at(all.y, count)}},
          {all.N - count, all.n, {at(all.A, count * all.n), all.A.end()}, {at(all.y, count), all.y.end()}}};
}

// By the largest of a few features, with noise: classes that overlap.
std::vector<double> made_classes(const Logistic& data) {
  std::vector<double> classes(data.N);
  for (std::size_t i = 0; i < data.N; ++i) {
    double most = -1e300;
    for (std::size_t k = 0; k < image_classes; ++k) {
      const double score = data.A[i * data.n + k] + gaussian(50 + k, i);
      if (score > most) most = score, classes[i] = static_cast<double>(k);
    }
  }
  return classes;
}

}  // namespace

Array matrix(const std::vector<double>& values, std::size_t rows, std::size_t columns) {
  const auto width = static_cast<std::int64_t>(columns);
  return Array::view(MatrixView{values.data(), static_cast<std::int64_t>(rows), width, width, 1});
}

std::string name_of(const std::string& which) { return is_there(which) ? which : fmt::format("made as {}", which); }

TrainAndValid a9a_samples() {
  if (is_there("a9a")) return {read(shared_file("a9a"), 123), read(shared_file("a9a.t"), 123)};
  auto [train, valid] = split(made(32561 + 16281, 123), 32561);
  return {std::move(train), std::move(valid)};
}

Samples samples_called(const std::string& which) {
  if (which == "made") return made(10000, 100);
  if (which == "a9a") return is_there(which) ? read(shared_file("a9a"), 123) : made(32561, 123);
  return is_there(which) ? read(shared_file("ijcnn1.trn.bz2"), 22) : made(49990, 22);
}

TrainAndValid image_samples() {
  Samples all;
  if (is_there("Fashion-MNIST")) {
    const Dataset d =
        read_idx(image_file("t10k-images-idx3-ubyte.gz").string(), image_file("t10k-labels-idx1-ubyte.gz").string());
    all = with_ones(d.A, d.y, 1 / 255.0);
  } else {
    const Logistic data = logistic_data(10000, 784);
    all = with_ones(matrix(data.A, data.N, data.n), Array::view(data.y));
    all.y = made_classes(data);
  }
  auto [train, valid] = split(all, 5000);
  for (std::size_t i = 0; i < train.N; ++i) {
    const auto others = static_cast<double>(image_classes - 1);
    const auto away = 1 + static_cast<std::size_t>(others * uniform(63, i));
    if (uniform(62, i) < 0.3)
      train.y[i] = static_cast<double>((static_cast<std::size_t>(train.y[i]) + away) % image_classes);
  }
  return {std::move(train), std::move(valid)};
}

std::vector<double> one_hot(const std::vector<double>& classes) {
  std::vector<double> entries(classes.size() * image_classes);
  for (std::size_t i = 0; i < classes.size(); ++i) entries[i * image_classes + static_cast<std::size_t>(classes[i])] = 1;
  return entries;
}

Logistic logistic_on(const Samples& samples, std::vector<double> l2) {
  Logistic data{samples.N, samples.n, samples.A, samples.y, std::vector<double>(samples.N, 1.0), {}, {}};
  data.x.assign(samples.n, 0);
  data.v.assign(samples.n, 0);
  data.l2 = std::move(l2);
  return data;
}

}  // namespace onestep::bench
