// Row loops on the CPU: one walk over the rows of tall arrays, block by block while a block is in cache, doing every
// product, elementwise operation and sum of the loop on it.
#pragma once

#include <memory>

#include "plan/program.h"

namespace onestep::cpu {

std::shared_ptr<const detail::BackendPlan> prepare_row_loop(const detail::RowLoop& loop);
void run_row_loop(const detail::BackendPlan& plan, const detail::Frame& frame);

}  // namespace onestep::cpu
