// An outer loop's state to and from its checkpoint, with what tells whether it belongs to this problem.
#include "bilevel/saved_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "solve/monitor.h"

namespace onestep::detail {

bool SavedRun::load(OuterState& state, Outer& outer) {
  const std::optional<std::string> bytes = file_.read();
  if (!bytes) return false;
  Reader reader(*bytes);
  std::string its_fingerprint;
  reader(its_fingerprint);
  if (its_fingerprint != fingerprint_) refuse("is of another problem: parameters, estimators, method or options differ");
  reader(state);
  reader(outer_);
  Reader of_the_method(outer_);
  outer.load(of_the_method);
  return true;
}

void SavedRun::remember(Outer& outer) {
  Writer writer;
  outer.save(writer);
  outer_ = writer.take();
}

void SavedRun::save(OuterState& state) {
  const double begin = now();
  Writer writer;
  writer(fingerprint_);
  writer(state);
  writer(outer_);
  file_.write(writer.take());
  const double took = now() - begin;
  longest_write_ = std::max(longest_write_, took);
  writing_ += took;
}

std::string text_of(const std::vector<Parameter>& parameters, std::span<const double> start) {
  std::string text;
  for (const Parameter& p : parameters) {
    text += fmt::format("; {} {} [{}, {}]", static_cast<int>(p.kind), to_string(p.start.shape()), p.low, p.high);
    if (p.kind == Parameter::Kind::fixed) text += fmt::format(" {:08x}", checksum(p.start));
  }
  for (const double u : start) text += fmt::format(" {:a}", u);
  return text;
}

}  // namespace onestep::detail
