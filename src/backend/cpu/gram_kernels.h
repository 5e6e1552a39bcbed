// aᵀ diag(d) a for a block of rows: the block is scaled by sqrt|d| and packed in one pass, and tiles of the result are then
// summed in registers. OpenBLAS would pack it again for every tile.
//
// Packed: panels of as many columns as a tile is high, row after row; of the rows those with d < 0 come last. The columns
// that fill no panel stand in front, so that a vector that reaches over the end of such a row still reads what is there.
#pragma once

#include <cstddef>

namespace onestep::cpu {

/// Columns of the result are cut at multiples of this.
inline constexpr std::size_t gram_tile_columns = 24;
/// At least this many columns, or a vector would reach over the end of the block.
inline constexpr std::size_t gram_least_columns = 8;

/// Packs rows [begin, end) of a block of `rows` x n into its rows * n doubles; d may be null (ones).
void pack_weighted_rows(std::size_t begin, std::size_t end, std::size_t rows, std::size_t n, const double* a,
                        std::size_t lda, const double* d, double* packed);

/// The part of the lower triangle of c = beta c + (packed block's aᵀ diag(d) a) in rows [i0, i1) and columns [j0, j1) of c,
/// which begin and end at multiples of gram_tile_columns or at n. The first `nonnegative` packed rows count as +, the others
/// as -. With beta = 0, c is not read.
void add_packed_gram(std::size_t rows, std::size_t n, const double* packed, std::size_t nonnegative, double beta,
                     std::size_t i0, std::size_t i1, std::size_t j0, std::size_t j1, double* c, std::size_t ldc);

/// Rows [begin, end) of c += partials[0] + ... + partials[count - 1], lower triangles of n x n.
void add_lower_rows(std::size_t begin, std::size_t end, std::size_t count, std::size_t n, const double* partials, double* c,
                    std::size_t ldc);

}  // namespace onestep::cpu
