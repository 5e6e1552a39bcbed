// The table of classes, and random matrices with given spectra.
#include "certificate/problem.h"

#include <algorithm>

namespace onestep::bench {
namespace {

RealMatrix real_matrix(const Array& a) {
  RealMatrix result(static_cast<std::size_t>(a.shape()[0]), static_cast<std::size_t>(a.shape()[1]));
  std::ranges::copy(a.values(), result.entries.begin());
  return result;
}

Array times(const Array& a, double factor) {
  const std::span<const double> values = a.values();
  std::vector<double> entries(values.begin(), values.end());
  for (double& e : entries) e *= factor;
  return Array(a.shape(), std::move(entries));
}

}  // namespace

const std::vector<ProblemClass>& all_classes() {
  static const std::vector<ProblemClass> all = [] {
    std::vector<ProblemClass> result;
    for (auto* const some : {map_classes, pipeline_classes, network_classes, statistics_classes, kinked_classes,
                             newton_classes, program_classes, bilevel_classes}) {
      const std::vector<ProblemClass> more = some();
      result.insert(result.end(), more.begin(), more.end());
    }
    return result;
  }();
  return all;
}

std::size_t random_size(Random& random, std::size_t most, double large_share) {
  if (random.chance(large_share)) return 70 + random.below(50);
  if (random.chance(0.1)) return 1;
  return 1 + random.below(random.chance(0.5) ? std::min<std::size_t>(most, 8) : most);
}

std::vector<Real> flat(const Parts& parts) {
  std::vector<Real> all;
  for (const Array& part : parts) {
    const Array rows = part.contiguous();
    all.insert(all.end(), rows.values().begin(), rows.values().end());
  }
  return all;
}

void set_truth(Problem& problem, const RootFunctions& functions) {
  problem.truth = [functions, t = flat(problem.theta)](const std::vector<Real>& from) {
    return find_root(functions, from, t);
  };
  problem.derivative_at = [functions, t = flat(problem.theta)](const std::vector<Real>& x) {
    return derivative_at(functions, x, t);
  };
}

std::vector<double> random_orthogonal(Random& random, std::size_t n) {
  // Gram and Schmidt on a Gaussian matrix, twice each row.
  std::vector<double> q = random.gaussians(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    double* const row = q.data() + i * n;
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t k = 0; k < i; ++k) {
        double dot = 0;
        for (std::size_t j = 0; j < n; ++j) dot += row[j] * q[k * n + j];
        for (std::size_t j = 0; j < n; ++j) row[j] -= dot * q[k * n + j];
      }
      double size = 0;
      for (std::size_t j = 0; j < n; ++j) size += row[j] * row[j];
      for (std::size_t j = 0; j < n; ++j) row[j] /= std::sqrt(size);
    }
  }
  return q;
}

Array symmetric_with(Random& random, const std::vector<double>& eigenvalues) {
  const std::size_t n = eigenvalues.size();
  const std::vector<double> q = random_orthogonal(random, n);
  std::vector<double> m(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double total = 0;
      for (std::size_t k = 0; k < n; ++k) total += eigenvalues[k] * q[k * n + i] * q[k * n + j];
      m[i * n + j] = m[j * n + i] = total;
    }
  return Array(Shape{as_size(n), as_size(n)}, std::move(m));
}

Array scaled_to_norm(const Array& matrix, double norm) {
  const double now = spectral_norm(real_matrix(matrix));
  return times(matrix, now > 0 ? norm / now : 0);
}

Array scaled_to_radius(const Array& matrix, double radius) {
  const double now = spectral_radius(real_matrix(matrix));
  return times(matrix, now > 0 ? radius / now : 0);
}

}  // namespace onestep::bench
