// Places for buffers in one arena: a sweep over the instructions with a list of free ranges. An instruction that can run in
// place takes over the buffer of an argument that is not needed after it.
#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "graph/rules.h"
#include "plan/program.h"

namespace onestep::detail {
namespace {

// Free ranges; the end of the arena grows as needed.
class Arena {
 public:
  std::size_t take(std::size_t size) {
    const auto best = by_size_.lower_bound({size, 0});
    if (best == by_size_.end()) return std::exchange(end_, end_ + size);
    const auto [length, offset] = *best;
    remove(free_.find(offset));
    if (length > size) insert(offset + size, length - size);
    return offset;
  }
  void give(std::size_t offset, std::size_t size) {
    if (size == 0) return;
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + size) {
      size += next->second;
      next = remove(next);
    }
    if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
      offset = std::prev(next)->first;
      size += std::prev(next)->second;
      remove(std::prev(next));
    }
    insert(offset, size);
  }
  std::size_t end() const { return end_; }

 private:
  using Ranges = std::map<std::size_t, std::size_t>;
  Ranges::iterator remove(Ranges::iterator it) {
    by_size_.erase({it->second, it->first});
    return free_.erase(it);
  }
  void insert(std::size_t offset, std::size_t size) {
    free_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }

  Ranges free_;                                            // offset, size
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  // size, offset
  std::size_t end_ = 0;
};

// The argument an instruction may overwrite, if there is one.
std::optional<std::size_t> overwrites(const Instruction& i) {
  if (i.is_loop()) return std::nullopt;
  if (is_factor(i.op) || i.op == Op::add) return 0;
  return i.op == Op::solve ? std::optional<std::size_t>(1) : std::nullopt;
}

}  // namespace

void pack_buffers(Program& program) {
  Indexed<BufferInfo>& buffers = program.buffers;
  Indexed<Buffer> owner(buffers.size());
  std::iota(owner.begin(), owner.end(), 0);
  // Taking over: the result lives where the argument was, from the argument's first use on.
  for (std::size_t k = 0; k < program.code.size(); ++k) {
    const Instruction& i = program.code[k];
    const auto which = overwrites(i);
    if (!which) continue;
    const Buffer from = i.args[*which];
    if (buffers[from].storage != Storage::arena || buffers[from].last != static_cast<int>(k)) continue;
    if (std::ranges::count(i.args, from) > 1) continue;
    BufferInfo& root = buffers[owner[i.out] = owner[from]];
    root.last = buffers[i.out].last;
    root.entries = std::max(root.entries, buffers[i.out].entries);
  }
  Indexed<std::vector<Buffer>> begins(program.code.size()), ends(program.code.size());
  for (const Buffer b : std::set(owner.begin(), owner.end())) {
    if (buffers[b].storage != Storage::arena) continue;
    begins[buffers[b].first].push_back(b);
    if (buffers[b].last != for_ever) ends[buffers[b].last].push_back(b);
  }
  Arena arena;
  for (std::size_t k = 0; k < program.code.size(); ++k) {
    for (const Buffer b : begins[k]) buffers[b].offset = arena.take(padded(buffers[b].entries));
    for (const Buffer b : ends[k]) arena.give(buffers[b].offset, padded(buffers[b].entries));
  }
  for (std::size_t b = 0; b < owner.size(); ++b) buffers[b].offset = buffers[owner[b]].offset;
  program.arena_entries = arena.end();
}

}  // namespace onestep::detail
