// How a solve ended: a word for programs, a sentence for people.
#pragma once

#include <iosfwd>

#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// How a solve ended. Numerical trouble is a status, never an exception; x is returned with each of them, the best point
/// there was.
///
///     if (s.status() != Status::converged) std::cerr << explain(s.status()) << '\n';
enum class Status {
  converged,           ///< The tolerance is met.
  rounding_reached,    ///< Rounding stopped all progress just above the tolerance; the best point is returned.
  iteration_limit,     ///< The iterations allowed were used up.
  time_limit,          ///< The time allowed was used up.
  cancelled,           ///< The callback asked to stop.
  diverged,            ///< The iterates grow without limit.
  not_finite,          ///< A NaN or an infinity in the data, or in what was computed from it.
  line_search_failed,  ///< No step along the search direction made progress.
  singular,            ///< A matrix could not be factored, nor made regular by a shift.
  infeasible,          ///< No point satisfies the constraints; a proof is returned (Solution::proof).
  unbounded,           ///< The objective decreases without limit; a proof is returned (Solution::proof).
  not_convex,          ///< A quadratic program whose Q has a negative eigenvalue.
};

/// The status as one word: `converged`, `iteration_limit`, ...
///
///     std::string word = to_string(Status::time_limit);
const char* to_string(Status status);

/// What happened and what to try, in a sentence or two.
///
///     std::cerr << explain(Status::iteration_limit) << '\n';
const char* explain(Status status);

/// Whether the point returned is as good as was asked for, or as good as rounding allows.
///
///     bool usable = is_solution(Status::rounding_reached);
constexpr bool is_solution(Status status) { return status == Status::converged || status == Status::rounding_reached; }

std::ostream& operator<<(std::ostream& out, Status status);

}  // namespace onestep
ONESTEP_EXPORT_END
