// The words and sentences of Status.
#include "onestep/status.h"

#include <ostream>

namespace onestep {

const char* to_string(Status status) {
  switch (status) {
    case Status::converged: return "converged";
    case Status::rounding_reached: return "rounding_reached";
    case Status::iteration_limit: return "iteration_limit";
    case Status::time_limit: return "time_limit";
    case Status::cancelled: return "cancelled";
    case Status::diverged: return "diverged";
    case Status::not_finite: return "not_finite";
    case Status::line_search_failed: return "line_search_failed";
    case Status::singular: return "singular";
    case Status::infeasible: return "infeasible";
    case Status::unbounded: return "unbounded";
    case Status::not_convex: return "not_convex";
  }
  return "unknown";
}

const char* explain(Status status) {
  switch (status) {
    case Status::converged: return "The tolerance is met.";
    case Status::rounding_reached:
      return "The tolerance is below what rounding allows for this problem: the residuals stopped decreasing, and the best "
             "point is returned. Scale the problem better, or ask for less.";
    case Status::iteration_limit:
      return "The iterations allowed were used up before the tolerance was met; the last point is returned. Allow more, "
             "start closer, or ask for less.";
    case Status::time_limit: return "The time allowed was used up before the tolerance was met; the last point is returned.";
    case Status::cancelled: return "The callback asked to stop; the last point is returned.";
    case Status::diverged:
      return "The iterates grow without limit: the step is no contraction here, or the objective has no minimum. Take "
             "shorter steps, start closer, or look for a sign that is wrong.";
    case Status::not_finite:
      return "A NaN or an infinity stands in the data or was computed from it. Look at the array that is named, if one is, "
             "at the domain of the functions used, and at solves within.";
    case Status::line_search_failed:
      return "No step along the search direction made progress although the tolerance is not met. There may be no solution, "
             "the derivative may be wrong, the function not smooth here, or the problem badly scaled.";
    case Status::singular:
      return "A matrix could not be factored. Add a term that makes the solution unique, remove what is redundant, or start "
             "elsewhere.";
    case Status::infeasible: return "No point satisfies all constraints.";
    case Status::unbounded:
      return "The objective decreases without limit along a ray: a constraint is missing, or a sign is wrong.";
    case Status::not_convex:
      return "Q has a negative eigenvalue, so a point where the first-order conditions hold need not be a minimum. Check "
             "the sign and the symmetry of Q.";
  }
  return "This is not a status.";
}

std::ostream& operator<<(std::ostream& out, Status status) { return out << to_string(status); }

}  // namespace onestep
