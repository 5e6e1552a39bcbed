// Samples of two sets as one.
#include "jobs/samples.h"

namespace onestep::app::jobs {

namespace {
Array rows_of_both(const Array& a, const Array& b) {
  std::vector<double> entries(a.values().begin(), a.values().end());
  entries.insert(entries.end(), b.values().begin(), b.values().end());
  const std::int64_t rows = a.shape()[0] + b.shape()[0];
  return {a.shape().rank() == 2 ? Shape{rows, a.shape()[1]} : Shape{rows}, std::move(entries)};
}
}  // namespace

Samples stacked(const Samples& first, const Samples& second) {
  Samples both;
  both.A = rows_of_both(first.A, second.A);
  both.y = rows_of_both(first.y, second.y);
  if (first.Y.shape().rank() == 2) both.Y = rows_of_both(first.Y, second.Y);
  both.rows = first.rows;
  both.rows.insert(both.rows.end(), second.rows.begin(), second.rows.end());
  return both;
}

}  // namespace onestep::app::jobs
