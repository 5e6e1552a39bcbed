// The data of a quadratic program as functions of θ: their values, and derivatives with respect to data as derivatives with
// respect to θ.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "onestep/plan.h"
#include "qp/derivative.h"
#include "qp/traced_program.h"
#include "solve/map.h"

namespace onestep::detail {

/// How data are computed, for any number of solves.
struct QpDataPlan {
  static constexpr int constants_level = 0, theta_level = 1, pull_back_branch = 3, push_forward_branch = 4;

  Sizes sizes;
  std::vector<Input> parameters;
  std::array<bool, blocks> moves{};  ///< with θ
  bool smooth = true;                ///< no kink is to be expected
  std::optional<Plan> plan;          ///< θ to the blocks, and its derivatives
  std::vector<Array> constants;      ///< that the blocks are made of; behind all other inputs of the plan
};

/// The data for a θ.
class QpDataAt {
 public:
  explicit QpDataAt(const QpDataPlan& data);

  /// What does not move is written the first time only.
  const QpData& bind(std::span<const Array> theta);
  const QpData& data() const { return data_; }
  bool is_smooth() const { return smooth_; }

  /// Where vjp writes the cotangents of the blocks that move, and θ̄ from them.
  QpCotangents cotangents() { return view_of(bars_); }
  std::vector<std::vector<double>>& bars() { return bars_; }
  static QpCotangents view_of(std::vector<std::vector<double>>& memory);
  void pull_back(std::span<const Vector> out);
  std::vector<double> pulled_back();  ///< the same, as one vector

  QpData push_forward(std::span<const Array> dtheta);
  /// The tangents that push_forward wrote last, and what for.
  QpData tangents() const { return view(tangents_); }
  std::vector<Array> direction() const;

  /// Calls `look` with the parameters moved by a few of their last places, into random corners and the opposite ones. False,
  /// without going on, where the data jump. Tangents are lost.
  bool visit_corners(const std::function<void()>& look);

  /// Whose derivative the cotangents and tangents belong to.
  const void* owner = nullptr;

 private:
  QpData view(const std::vector<std::vector<double>>& memory) const;
  bool jumped_from(const std::vector<std::vector<double>>& before) const;

  const Plan& plan_;
  Workspace workspace_;
  std::array<bool, blocks> moves_;
  bool smooth_;
  std::size_t thetas_;
  std::ptrdiff_t dtheta_ = 0;  // where inputs begin
  std::vector<std::vector<double>> values_, bars_, tangents_;
  std::vector<Array> inputs_;
  std::vector<Vector> outputs_;
  QpData data_;
};

}  // namespace onestep::detail
