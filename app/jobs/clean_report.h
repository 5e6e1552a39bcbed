// What clean says about models with and without the suspects, and about whether the model can judge labels at all.
#pragma once

#include <string>

#include "base/json_document.h"
#include "jobs/cleaning.h"
#include "page/layout.h"

namespace onestep::app::jobs {

/// The headline where the model predicts labels no better than the class frequencies do.
std::string undecided_sentence(const Comparison& c);
/// The headline where there are suspects: whether they are removed, by the comparison or because the user asked for it.
std::string suspects_sentence(const Comparison& c, std::size_t suspects, std::size_t samples, bool removed);

/// Without suspects there is only one model, and nothing to compare it with but the class frequencies.
Json comparison_json(const Comparison& c, bool has_suspects);
page::Table comparison_table(const Comparison& c, bool has_suspects);

}  // namespace onestep::app::jobs
