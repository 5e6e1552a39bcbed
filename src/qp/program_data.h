// A QuadraticProgram as the interior point method reads it: contiguous, with numbers that stand for vectors written out.
#pragma once

#include <array>

#include "onestep/quadratic_program.h"
#include "qp/scaling.h"

namespace onestep::detail {

/// Keeps what data() points to alive. Copies only what is not contiguous, or not a vector where one is needed.
class ProgramData {
 public:
  /// Throws MisuseError when the shapes do not fit each other.
  explicit ProgramData(const QuadraticProgram& program);
  const QpData& data() const { return data_; }

 private:
  std::array<Array, 9> parts_;
  QpData data_;
};

}  // namespace onestep::detail
