// The value of an objective at trial points: what line searches ask for.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "linear/vector.h"
#include "onestep/plan.h"

namespace onestep::detail {

/// One number as a function of x and θ, planned when it is first used.
class TrialFunction {
 public:
  using Value = std::function<Expr(const Expr& x, std::span<const Expr> theta)>;
  /// `theta` has the parameters, and behind them the data.
  TrialFunction(std::size_t n, std::vector<Input> parameters, std::vector<Array> data, const Context& context, Value value);
  const Plan& plan() const;
  const std::vector<Array>& data() const { return data_; }
  void bind(const std::vector<Array>& data) { data_ = data; }

 private:
  struct Shared {
    std::vector<Input> inputs;  // x, parameters, data
    std::vector<int> levels;
    Context context;
    Value value;
    std::once_flag once;
    std::optional<Plan> plan;
  };
  std::shared_ptr<Shared> shared_;
  std::vector<Array> data_;
};

/// Its value at trial points: what line searches ask for.
class Trial {
 public:
  Trial(const TrialFunction& function, std::size_t n, const std::vector<Input>& parameters);
  void bind(std::span<const Array> theta);
  double operator()(ConstVector x);
  void read_data_again() { changed_ = 0; }

 private:
  const Plan& plan_;
  Workspace workspace_;
  std::vector<double> x_;
  std::vector<Array> inputs_;
  int changed_ = 1;
};

}  // namespace onestep::detail
