// What a compiled program of another framework calls: a solve, a derivative or an evaluation for shapes that are known,
// found by a number. Nothing here knows Python.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "problems.h"

namespace onestep::python {

/// A traced function that is evaluated for each direction of each problem, by any number of threads at once.
class Evaluation {
 public:
  /// It is linear in the `first` of the directed arguments, and in the others of them: where either are zero, as for a
  /// problem that a loss leaves out, so are the results. Where it `raises`, one that is not finite is a NoDerivativeError,
  /// which has the name.
  Evaluation(std::string name, const Function& function, std::size_t first, std::size_t directed, bool raises);
  /// The first arguments have an axis of directions and one of problems, the others one of problems where they are batched.
  void run(const Layout& layout, std::size_t directions, Inputs inputs, Outputs out);
  const Function& function() const { return function_; }
  std::size_t directed() const { return directed_; }

 private:
  Workspace take();
  void check_finite(std::span<const std::span<double>> results) const;
  bool is_zero_in(std::span<const Array> directions) const;
  std::string name_;
  Function function_;
  Plan plan_;
  std::size_t first_, directed_;
  bool raises_;
  std::mutex mutex_;
  std::vector<Workspace> idle_;
};

class Call {
 public:
  using Dims = std::vector<std::int64_t>;

  static std::shared_ptr<Call> solve(std::shared_ptr<Problems> problems, Layout layout);
  static std::shared_ptr<Call> vjp(std::shared_ptr<Problems> problems, Layout layout, Directions which);
  static std::shared_ptr<Call> jvp(std::shared_ptr<Problems> problems, Layout layout, Directions which);
  static std::shared_ptr<Call> evaluate(std::shared_ptr<Evaluation> evaluation, Layout layout, std::size_t directions);

  /// What compiled programs know it by; no other process has it.
  std::int64_t number() const { return number_; }
  /// The call of this number, or nothing.
  static std::shared_ptr<Call> of(std::int64_t number);

  /// Arrays of doubles. After the outputs of a solve comes one of statuses, which are whole numbers of 32 bits.
  const std::vector<Dims>& inputs() const { return inputs_; }
  const std::vector<Dims>& outputs() const { return outputs_; }
  bool has_statuses() const { return kind_ == Kind::solve; }
  std::size_t count() const { return layout_.count; }

  void run(Inputs inputs, Outputs outputs, std::int32_t* statuses);

 private:
  enum class Kind { solve, vjp, jvp, evaluate };
  Call(Kind kind, Layout layout) : kind_(kind), layout_(std::move(layout)) {}
  static std::shared_ptr<Call> registered(std::shared_ptr<Call> call);
  void add_inputs_of_problems();
  void add_directions(std::vector<Dims>& to);
  void add_state(std::vector<Dims>& to, bool with_directions);

  Kind kind_;
  Layout layout_;
  Directions which_;
  std::shared_ptr<Problems> problems_;
  std::shared_ptr<Evaluation> evaluation_;
  std::vector<Dims> inputs_, outputs_;
  std::int64_t number_ = 0;
};

}  // namespace onestep::python
