// The linear system of the derivative that a certificate compares with: M x = b, M being I - A at a point nearer to the
// solution than x_k, or its transpose; and what is seen of ‖(I - A)⁻¹‖ and ‖B‖ on the way.
#pragma once

#include "estimate/refine.h"

namespace onestep::detail {

class BetterSystem {
 public:
  /// `products`: how many products with the step's derivatives were made, as the caller counts them.
  BetterSystem(SolutionState& s, int& products);

  /// Upper estimate of ‖(I - A)⁻¹‖.
  double inverse() const;
  /// Kept for the next certificate of this solution, unless it is in the units of this one.
  void note_inverse(double seen);
  /// ‖B‖ as directions saw it.
  double size_of_b() const { return size_of_b_; }
  void note_size_of_b(double seen);
  /// Error contributions of the residual below this are neglected.
  void set_negligible_error(double error) { negligible_ = error; }

  /// Starts at x = b, or at the solution of the estimator's linear solve, scaled to the smallest residual r = b - Mx.
  /// True when the estimator's solution was used.
  bool begin(const Product& M, ConstVector b, std::vector<double>& x, std::vector<double>& r) const;

  /// M x = b from an x with residual r: to 1e-3, unless x `is_solved_already`, of a linear solve already, then until what is
  /// left changes the derivative by a fraction of the difference that `compare` returns for x, or the products are spent but
  /// for those `to_come`. The product that gives r and what `compare` computes are one vjp. Returns the last difference.
  double solve(bool transposed, const Product& M, ConstVector b, std::vector<double>& x, std::vector<double>& r,
               bool is_solved_already, int to_come, const std::function<double()>& compare);
  /// The norm of the residual, in the units in which it was solved.
  double left() const { return left_; }
  /// Why it was not solved; empty: it was.
  const std::string& trouble() const { return trouble_; }

  /// The error that a residual of this norm leaves; `tail` adds a safety factor where ‖(I - A)⁻¹‖ is poorly known.
  double effect_of(double left) const { return inverse() * size_of_b_ * left; }
  bool matters(double left, double difference) const;
  /// Whether so many products to come are within what a certificate may cost. (Where the step has a factor they are cheap.)
  bool affords(int to_come) const;
  double tail(double left, double difference) const;

 private:
  double solve_as_it_is(bool transposed, const Product& M, ConstVector b, std::vector<double>& x, std::vector<double>& r,
                        bool is_solved_already, int to_come, const std::function<double()>& compare);
  Differentiator::FactorOf look_for_inverse(const LinearSystem& system, int to_come);

  SolutionState& s_;
  int& products_;
  double inverse_ = 1, size_of_b_ = 0, negligible_ = 0, left_ = 0;
  bool in_units_ = false;  // solves in units of the state's entries
  std::string trouble_;
};

}  // namespace onestep::detail
