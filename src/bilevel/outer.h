// The outer methods: where to go from u, given the gradient. Each remembers what it needs, and can be saved.
#pragma once

#include <memory>

#include "bilevel/checkpoint.h"
#include "bilevel/free_parameters.h"

namespace onestep::detail {

class Outer {
 public:
  virtual ~Outer() = default;
  /// A step from u, to be projected onto the bounds.
  virtual void direction(const FreeParameters& parameters, std::span<const double> u, std::span<const double> gradient,
                         std::span<double> step) = 0;
  /// Whether the step's length has to be searched for.
  virtual bool searches() const { return true; }
  /// A step was made, of this share of the one proposed.
  virtual void learn_from_step(std::span<const double> /*step*/, std::span<const double> /*change of the gradient*/,
                               double /*length*/) {}
  /// What it remembers does not help.
  virtual void reset() {}
  virtual bool remembers() const { return false; }
  /// Its name and options: what a checkpoint must agree in.
  virtual std::string text() const = 0;
  virtual void save(Writer&) = 0;
  virtual void load(Reader&) = 0;
};

/// Throws MisuseError for options out of range.
std::unique_ptr<Outer> make_outer(const OuterMethod& method);

/// Throws MisuseError for a value out of range.
void verify(const BilevelOptions& options);

}  // namespace onestep::detail
