// One problem, solved and differentiated by the library with a random estimator, tolerance and start; each of its
// derivatives held against the truth, and each bound against the error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "certificate/problem.h"

namespace onestep::bench {

// One derivative that was asked for.
struct Query {
  enum class Kind { bound, refused, threw, undecided } kind = Kind::bound;
  bool forward = false;  // jvp; else vjp
  bool unit = false;     // along one entry
  std::string reason;    // of a refusal, or what was thrown
  double error = 0, bound = 0, value = 0, estimate = 0;
  int products = 0, products_again = 0;  // of the certificate, and of the same one asked for again
  int derivative_products = 0;
  bool holds_u = false;      // the derivative came from a linear system
  bool printed_low = false;  // the number printed is below the bound
  // Of Auto: its error relative to the derivative at x_k over its tolerance, and whether it says that it met it.
  double auto_error = -1;
  bool auto_claims = false;
  double factor() const;  // by which the error exceeds the bound
  double ratio() const;   // bound / max(error, 1e-12 ‖g‖)
};

struct Trial {
  // failed: something was thrown where nothing should be, `status` says what.
  enum class Outcome { done, no_truth, not_solved, failed } outcome = Outcome::no_truth;
  std::size_t index = 0;
  Family family = Family::smooth_map;
  bool non_normal = false;  // a smooth map with ‖A‖ ≥ 1
  double rho = 0;           // ‖A‖ of a contraction, the spectral radius of other maps
  double tolerance = 0;
  std::string estimator, status;
  std::size_t size = 0, parameters = 0;
  int implicit_products = -1;  // of a matrix-free Implicit solve to 1e-3, where that was measured
  std::vector<Query> queries;
};

std::size_t total_size(const Parts& parts);
// Entries from the flat vector, in the shapes of `like`.
Parts in_shapes_of(const Parts& like, const std::vector<double>& entries);
// J v, or Jᵀ v.
std::vector<Real> times(const RealMatrix& J, const std::vector<double>& v, bool forward);
struct ChosenEstimator {
  Estimator estimator;
  std::string text;
  double tolerance = 0;  // of Auto, else 0
};
ChosenEstimator random_estimator(Random& random);
// The generator of a problem: every problem of every class has its own.
Random random_of(std::string_view name, std::uint64_t seed, std::size_t index);

// With `log` everything about it is written there.
Trial run_trial(const ProblemClass& kind, std::uint64_t seed, std::size_t index, std::ostream* log = nullptr);

}  // namespace onestep::bench
