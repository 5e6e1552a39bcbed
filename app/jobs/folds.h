// Which fold holds a sample out.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace onestep::app::jobs {

constexpr std::size_t no_fold = std::numeric_limits<std::size_t>::max();

/// A fold for each sample. Samples of a class are dealt out in turn, in an order that the seed decides, so that a small
/// class is in many folds. The only sample of a class is held out by none: a fit without it would know nothing of the class.
std::vector<std::size_t> deal_out(std::span<const std::size_t> classes, std::size_t count, std::uint64_t seed);

}  // namespace onestep::app::jobs
