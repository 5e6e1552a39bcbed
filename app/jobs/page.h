// The page of a job.
#pragma once

#include <string>

#include "jobs/report.h"
#include "page/html.h"

namespace onestep::app::jobs {

std::string page_of(const JobOptions& options, const Report& report, const page::Pictures& pictures);

}  // namespace onestep::app::jobs
