// A user's lambda as it was called last: a traced function. The arrays it closed over are its data. Plans are made of the
// function with its data as arguments, so that the same plan serves other data of the same shapes.
#pragma once

#include "onestep/solver.h"

namespace onestep::detail {

/// The arrays a traced lambda closed over, in the order in which it used them first.
std::span<const Array> data_of(const Function& traced);
/// Whether both were traced by the same operations, whatever the entries of their data.
bool same_graph(const Function& a, const Function& b);
/// Of two with the same graph: whether their data are the same memory. The entries of an Array that owns its memory never
/// change; behind a view they may, and are then read anew by every solve.
bool same_data(const Function& a, const Function& b);
/// Whether some of the data belong to the caller (Array::view).
bool has_views(const Function& traced);

/// A solve inside a traced function.
class SolveInside : public Foreign {
 public:
  /// The same to rounding, differentiated implicitly.
  virtual std::shared_ptr<const Foreign> precise() const = 0;
  /// What its derivative leaves out although it is solved precisely, in words; empty: nothing.
  virtual std::string left_out() const = 0;
  /// Whether it is differentiated by a single step of Newton's method, which has the right first derivative alone.
  virtual bool has_first_derivative_only() const = 0;
};
bool has_solves(const Function& traced);
/// left_out() of the first inner solve for which it is not empty.
std::string left_out_inside(const Function& traced);
/// Whether one has the right first derivative alone, and the function is differentiated `orders` times, of which that is not
/// enough.
bool lacks_orders_inside(const Function& traced, int orders);

enum class Inside { as_it_is, precise };  ///< how solves inside are made
/// The same function of its arguments, then its data.
Body with_data_as_arguments(const Function& traced, Inside inside = Inside::as_it_is);

}  // namespace onestep::detail
