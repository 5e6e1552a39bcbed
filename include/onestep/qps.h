// Quadratic and linear programs from QPS and MPS files.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "onestep/export.h"
#include "onestep/quadratic_program.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// A quadratic program as a file has it, with the names of its columns and rows in the file's order. The E rows without a
/// range are the equalities, all other rows but the objective the inequalities.
///
///     QpsFile file = read_qps("HS21.QPS");
///     std::cout << file.name << " has " << file.columns.size() << " variables\n";
struct QpsFile {
  std::string name;  ///< as the NAME line has it, which may be empty
  /// What is minimised. For a file that maximises these are its Q, q and constant with the opposite sign.
  QuadraticProgram problem;
  bool maximise = false;                  ///< whether the file maximises (OBJSENSE MAX)
  std::vector<std::string> columns;       ///< names of the variables, the entries of q
  std::vector<std::string> equalities;    ///< names of the rows of A
  std::vector<std::string> inequalities;  ///< names of the rows of G
};

/// Reads a QPS or MPS file, plain or compressed by gzip or bzip2 (told by its first bytes, not by its name); standard input
/// for "-".
///
/// The lines are split at blanks, or by the columns of the fixed format (2-3, 5-12, 15-22, 25-36, 40-47, 50-61) where that
/// makes sense of more lines of the file: its names have blanks in them.
///
/// - Sections: NAME, OBJSENSE, ROWS, COLUMNS, RHS, RANGES, BOUNDS, QUADOBJ or QSECTION (one triangle of Q), QMATRIX (both),
///   ENDATA. The objective is ½xᵀQx + qᵀx + constant, the constant minus the right-hand side of the objective row.
/// - The first N row is the objective, further ones are ignored. Of several vectors in RHS, RANGES or BOUNDS the first
/// counts.
/// - A range R makes an E row [b, b+R] where R > 0 and [b+R, b] where R < 0, a G row [b, b+|R|], an L row [b-|R|, b].
/// - A variable without bounds is at least 0. A negative UP bound makes the lower bound -∞ if none was given up to there; MI
///   leaves the upper bound as it is. Of several bounds on the same side the last counts.
/// - From 1e20 on, a bound, a right-hand side or a range is infinite; a row with two infinite sides remains a row.
/// - Integer variables (MARKER lines; BV, LI, UI, SC bounds) and quadratic constraints are refused.
///
/// The matrices are dense. Throws FileError when they need more than `memory_limit` bytes, when the file cannot be read, and
/// for everything that is wrong in it, with line and field: `[read_qps] FILE:12: field 3: "1.2.3" is not a number`.
///
///     QuadraticProgram p = read_qps("QAFIRO.QPS.gz").problem;
QpsFile read_qps(const std::string& path, std::size_t memory_limit = std::size_t{4} << 30);

}  // namespace onestep
ONESTEP_EXPORT_END
