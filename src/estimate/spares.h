// Memory that results of many problems are written to again and again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace onestep::detail {

/// Memory of gradients that were given back, for the next ones: to ask the system for pages again, some megabytes of them,
/// takes as long as small derivatives do. Any thread may give back.
class Spares : public std::enable_shared_from_this<Spares> {
 public:
  Spares() { spares_.reserve(most); }
  std::shared_ptr<double[]> take(std::size_t size) {
    std::unique_ptr<double[]> memory;
    {
      const std::lock_guard lock(mutex_);
      const auto same = std::ranges::find(spares_, size, &Spare::first);
      if (same != spares_.end()) {
        memory = std::move(same->second);
        spares_.erase(same);
      }
    }
    if (!memory) memory = std::make_unique_for_overwrite<double[]>(size);
    auto give_back = [keeper = shared_from_this(), size](double* p) { keeper->keep(size, std::unique_ptr<double[]>(p)); };
    return {memory.release(), std::move(give_back)};
  }

 private:
  using Spare = std::pair<std::size_t, std::unique_ptr<double[]>>;
  static constexpr std::size_t most = 16;  // more than one call takes of most problems
  void keep(std::size_t size, std::unique_ptr<double[]> memory) {
    const std::lock_guard lock(mutex_);
    if (spares_.size() == most) spares_.erase(spares_.begin());
    spares_.emplace_back(size, std::move(memory));
  }

  std::mutex mutex_;
  std::vector<Spare> spares_;
};

}  // namespace onestep::detail
