// `onestep_bench certificate`: bounds on random problems held against the truth.
#pragma once

#include <span>
#include <string_view>

namespace onestep::bench {

// The words behind `certificate`; the exit status.
int run_certificate(std::span<const std::string_view> words);

}  // namespace onestep::bench
