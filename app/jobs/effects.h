// What each training sample does to the loss of samples that the fit did not see: the derivative by its weight, and the
// change when it is left out.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "jobs/leave_one_out.h"
#include "jobs/model.h"
#include "jobs/soft_fits.h"

namespace onestep::app::jobs {

/// Of one training sample. Means over the samples that judge it: those of other folds, or the validation samples.
struct Effect {
  double derivative = 0;          ///< of the mean loss by the sample's weight
  std::optional<double> removal;  ///< how the mean loss changes without it; none where that cannot be predicted
  double standard_error = 0;      ///< of that, over the samples that judge; 0 where it is not known
};

/// Trained again without a sample, in every fit that had it.
struct Retrained {
  std::size_t sample;
  double derivative, removal, actual;  ///< changes of the mean loss: -derivative, as predicted, as it was
};

class Effects {
 public:
  /// With `folds` above 0 every training sample is judged by a fit without its fold; else validation samples judge.
  /// `tell` is called along the way with what is being done, and stops it when it says false.
  Effects(const JobData& job, const Model& model, double l2, std::size_t folds, std::uint64_t seed,
          std::function<bool(const std::string&)> tell);
  Effects(const Effects&) = delete;
  Effects& operator=(const Effects&) = delete;
  ~Effects() = default;

  /// Throws FitFailed, and Misuse where a fit is not unique.
  void compute();
  /// Of the sample; throws FitFailed.
  Retrained retrain_without(std::size_t sample);

  const std::vector<Effect>& all() const { return effects_; }
  /// The loss of each training sample by the fit that is judged: where there are folds, by the one without its fold.
  const std::vector<double>& losses() const { return losses_; }
  /// The loss of each training sample by the fit to all others, with its leverage; empty without leverages, and nothing for
  /// samples without which the fit is not unique.
  const std::vector<std::optional<OwnLoss>>& own_losses() const { return own_losses_; }
  double loss() const { return loss_; }             ///< mean, of the samples that judge
  std::size_t judging() const { return judging_; }  ///< how many they are
  /// Whether standard errors and leverages are there: not for more than LeaveOneOut::most_unknowns unknowns.
  bool has_leverage() const { return model_.unknowns() <= most_unknowns(); }
  static std::int64_t most_unknowns();
  const Certificate& certificate() const { return certificate_; }  ///< the loosest of the fits
  double fit_seconds() const { return fit_seconds_; }
  double derivative_seconds() const { return derivative_seconds_; }
  double removal_seconds() const { return removal_seconds_; }
  /// The model of all training samples.
  Array fit_all();

 private:
  struct Part {
    std::vector<double> weights;      // of the training samples: 1, or 0 for those held out
    std::vector<std::size_t> places;  // of those with weight 1
    std::vector<std::size_t> judged;  // places of those held out; empty where validation samples judge
    Samples judges;
    Array x;
    double loss = 0;  // sum over the judges
  };
  void split(std::size_t folds, std::uint64_t seed);
  void differentiate(const Part& part, const Solution& s);
  void remove(const Part& part);
  void find_own_losses(const LeaveOneOut& without);
  void find_own_losses_of_another_fit();
  std::vector<std::size_t> class_sizes(const std::vector<std::size_t>& places) const;
  bool is_last_of_its_class(std::size_t sample, const std::vector<std::size_t>& sizes) const;
  const Solution& fit(const Part& part, std::vector<double> weights, const Array& start);
  double judge(const Part& part, const Array& x) const;
  double judges_of(std::size_t sample) const;

  const JobData& job_;
  const Model& model_;
  double l2_;
  std::function<bool(const std::string&)> tell_;
  std::string doing_;
  Prepared prepared_;
  std::vector<Part> parts_;
  std::vector<Effect> effects_;
  std::vector<double> losses_, sums_, squares_;
  std::vector<std::optional<OwnLoss>> own_losses_;
  std::optional<Array> x_of_all_;
  std::vector<bool> unpredicted_;
  double loss_ = 0, fit_seconds_ = 0, derivative_seconds_ = 0, removal_seconds_ = 0;
  std::size_t judging_ = 0;
  Certificate certificate_;
};

}  // namespace onestep::app::jobs
