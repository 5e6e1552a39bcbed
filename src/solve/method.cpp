#include "solve/method.h"

namespace onestep::detail {

void Method::bind(const std::vector<Array>& data) {
  if (const std::shared_ptr<const Map> other = step->with_data(data)) step = other;
  if (!users_equation) equation = equation.with_data(data);
}

}  // namespace onestep::detail
