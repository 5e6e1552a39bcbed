// Fashion-MNIST where it is installed, else samples made of known classes or of a known linear model.
#include "jobs/demo.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "jobs/samples.h"

namespace onestep::app::jobs {

namespace {

constexpr const char* fashion = "/usr/share/datasets/fashion-mnist";

Dataset rows(const Dataset& d, std::size_t begin, std::size_t count, const std::vector<std::size_t>& order, double scale) {
  const auto n = static_cast<std::size_t>(d.A.shape()[1]);
  std::vector<double> a, y;
  a.reserve(count * n);
  for (std::size_t i = begin; i < begin + count; ++i) {
    for (std::size_t j = 0; j < n; ++j) a.push_back(scale * d.A.values()[order[i] * n + j]);
    y.push_back(d.y.values()[order[i]]);
  }
  const auto size = static_cast<std::int64_t>(count);
  return {Array({size, d.A.shape()[1]}, std::move(a)), Array({size}, std::move(y))};
}

Demo fashion_mnist(std::uint64_t seed) {
  const std::string folder = fashion;
  const auto read = [&](const std::string& which) {
    return read_idx(folder + "/" + which + "-images-idx3-ubyte.gz", folder + "/" + which + "-labels-idx1-ubyte.gz");
  };
  const Dataset train = read("train"), test = read("t10k");
  const auto order = shuffled(static_cast<std::size_t>(train.y.size()), seed);
  const auto test_order = shuffled(static_cast<std::size_t>(test.y.size()), seed);
  Demo demo;
  demo.name = "Fashion-MNIST, 5,000 + 5,000 images";
  demo.train = rows(train, 0, 5000, order, 1 / 255.0);
  demo.valid = rows(train, 5000, 5000, order, 1 / 255.0);
  demo.test = rows(test, 0, 10000, test_order, 1 / 255.0);
  demo.image_side = 28;
  demo.label_names = {"T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"};
  return demo;
}

// Classes around centres of their own, or a linear model with noise; features of which some say nothing.
Demo made(const std::string& loss, std::uint64_t seed) {
  constexpr std::size_t n = 20, informative = 8, classes = 4;
  std::mt19937_64 engine(seed + 1);
  std::normal_distribution<double> normal;
  const std::size_t K = loss == "softmax" ? classes : 2;
  std::vector<double> centres(K * n);
  for (std::size_t k = 0; k < K; ++k)
    for (std::size_t j = 0; j < informative; ++j) centres[k * n + j] = 0.7 * normal(engine);
  const auto draw = [&](std::int64_t count) {
    std::vector<double> a, y;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t k = engine() % K;
      double target = 0.5 * normal(engine);
      for (std::size_t j = 0; j < n; ++j) {
        const double z = normal(engine);
        a.push_back(loss == "ridge" ? z : z + centres[k * n + j]);
        target += centres[j] * z;
      }
      y.push_back(loss == "ridge" ? target : K == 2 ? 2.0 * static_cast<double>(k) - 1 : static_cast<double>(k));
    }
    return Dataset{Array({count, static_cast<std::int64_t>(n)}, std::move(a)), Array({count}, std::move(y))};
  };
  Demo demo;
  demo.name = "made data";
  demo.train = draw(400);
  demo.test = draw(2000);
  return demo;
}

}  // namespace

bool has_images(const std::string& loss) { return loss == "softmax" && std::filesystem::exists(fashion); }

Demo make_demo(const std::string& loss, std::uint64_t seed, bool with_validation) {
  if (has_images(loss)) {
    Demo demo = fashion_mnist(seed);
    if (!with_validation) demo.valid.reset();
    return demo;
  }
  return made(loss, seed);
}

}  // namespace onestep::app::jobs
