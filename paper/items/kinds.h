// The computations of the items, one for each file of this folder.
#pragma once

#include "paper/items.h"

namespace onestep::app::paper {

void compute_newton(const ItemOptions& options, const Watch& watch, Item& item);
void compute_qp(const ItemOptions& options, const Watch& watch, Item& item);
void compute_logistic(const ItemOptions& options, const Watch& watch, Item& item);
void compute_ridge(const ItemOptions& options, const Watch& watch, Item& item);
void compute_complexity(const ItemOptions& options, const Watch& watch, Item& item);
void compute_equation(const ItemOptions& options, const Watch& watch, Item& item);
void compute_bounds(const ItemOptions& options, const Watch& watch, Item& item);
void compute_certificate(const ItemOptions& options, const Watch& watch, Item& item);

}  // namespace onestep::app::paper
