// What solves the problems of one layout: a Slot; and what differentiates the problems that it solved: a Derivation.
#pragma once

#include <functional>
#include <optional>
#include <variant>

#include "problems.h"

namespace onestep::python {

/// A solver prepared for one layout, and copies of the inputs and the state of what it solved last: their memory belongs to
/// the slot, since the caller's is gone when a derivative is asked for.
class Problems::Slot {
 public:
  Slot(const Problems& problems, Layout layout);

  void solve(Inputs inputs);
  std::vector<std::size_t> failed() const;
  Status status(std::size_t i) const;
  Solution one(std::size_t i) const;
  const ManySolutions* many() const { return many_ ? &*many_ : nullptr; }

  /// Keeps the state as it is handed out: NaN for those that failed.
  void write_state(const std::vector<std::size_t>& failed);
  void copy_state_to(Outputs state) const;
  /// Keeps the state of an earlier solve as that of this one.
  void adopt_state(Inputs state);
  bool has_solved(Inputs inputs, Inputs state) const;

 private:
  Array array_of(std::size_t input, std::size_t problem) const;
  Parts parts_of(std::size_t first, std::size_t count) const;
  std::vector<Many> all_of(std::size_t first, std::size_t count) const;
  std::size_t size_of(std::size_t input) const;

  const Problems& problems_;
  Layout layout_;
  std::vector<std::vector<double>> inputs_, state_;
  bool is_solved_ = false;
  std::optional<Prepared> prepared_;
  std::optional<PreparedMany> prepared_many_;
  std::optional<ManySolutions> many_;
};

/// Derivatives of what a slot has solved, in the layout of Problems.
class Derivation {
 public:
  Derivation(const Problems& problems, const Problems::Slot& slot, const Layout& layout, const Directions& which);
  void vjp(Inputs c, Outputs out) const;
  void jvp(Inputs v, Outputs out) const;
  /// Zeros, where there is no problem or no direction.
  static void clear(const Problems& problems, const Layout& layout, const Directions& which, Outputs out);

 private:
  const Shape& theta(std::size_t k) const { return problems_.shapes_.theta[k]; }
  std::size_t size(std::size_t k) const { return static_cast<std::size_t>(theta(k).size()); }
  bool is_batched(std::size_t k) const { return layout_.batched[problems_.shapes_.start.size() + k]; }
  bool has_axis(std::size_t k) const { return is_batched(k) || which_.apart[k]; }
  bool is_together() const;
  void vjp_together(std::size_t direction, Inputs c, Outputs out) const;
  void vjp_one_by_one(std::size_t direction, Inputs c, Outputs out) const;
  void jvp_together(std::size_t direction, Inputs v, Outputs out) const;
  void jvp_one(std::size_t direction, std::size_t i, Inputs v, Outputs out) const;
  void derive(std::size_t i, bool is_finite, const std::function<void(const Solution&)>& use,
              const std::function<void()>& otherwise) const;
  Array tangent(std::size_t k, std::size_t direction, std::size_t i, Inputs v) const;

  const Problems& problems_;
  const Problems::Slot& slot_;
  const Layout& layout_;
  const Directions& which_;
};

}  // namespace onestep::python
