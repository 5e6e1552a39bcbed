// Rows of the suite "solve" about quadratic programs.
#pragma once

#include "data.h"
#include "harness.h"
#include "onestep/onestep.h"

namespace onestep::bench {

/// The program of the paper with the right-hand side of its equalities as parameter, and where its solves start.
Solver paper_program(const DenseQp& qp);
Parts cold_start(const DenseQp& qp);

void run_programs(Suite& suite);

}  // namespace onestep::bench
