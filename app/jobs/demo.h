// Samples for trying a job with no file at hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onestep/dataset.h"

namespace onestep::app::jobs {

struct Demo {
  std::string name;  ///< what it is, for the report
  Dataset train, test;
  std::optional<Dataset> valid;
  std::int64_t image_side = 0;
  std::vector<std::string> label_names = {};  ///< of the labels 0, 1, …
};

/// Whether the made data for this loss are images, which have validation samples of their own.
bool has_images(const std::string& loss);

/// For a loss, two classes where none is named. Softmax takes images of Fashion-MNIST where Debian's package is installed;
/// all else is drawn from normal distributions.
Demo make_demo(const std::string& loss, std::uint64_t seed, bool with_validation);

}  // namespace onestep::app::jobs
