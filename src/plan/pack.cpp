// Places for buffers in one arena: a sweep over the instructions with a list of free ranges. An instruction that can run in
// place takes over the buffer of an argument that is not needed after it.
#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "graph/rules.h"
#include "plan/program.h"

namespace onestep::detail {
namespace {

constexpr std::size_t alignment = 8;  // doubles: a cache line
std::size_t rounded(std::size_t entries) { return (entries + alignment - 1) / alignment * alignment; }

// Free ranges by offset; the end of the arena grows as needed.
class Arena {
 public:
  std::size_t take(std::size_t size) {
    const auto best = by_size_.lower_bound(size);
    if (best == by_size_.end()) {
      const std::size_t offset = end_;
      end_ += size;
      return offset;
    }
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
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        size += before->second;
        remove(before);
      }
    }
    insert(offset, size);
  }
  std::size_t end() const { return end_; }

 private:
  using Ranges = std::map<std::size_t, std::size_t>;
  Ranges::iterator remove(Ranges::iterator it) {
    auto [low, high] = by_size_.equal_range(it->second);
    by_size_.erase(std::find_if(low, high, [&](const auto& entry) { return entry.second == it->first; }));
    return free_.erase(it);
  }
  void insert(std::size_t offset, std::size_t size) {
    free_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }

  Ranges free_;                                      // offset, size
  std::multimap<std::size_t, std::size_t> by_size_;  // size, offset
  std::size_t end_ = 0;
};

// The argument an instruction may overwrite, or -1.
int overwrites(const Instruction& i) {
  if (i.is_loop()) return -1;
  if (is_factor(i.op) || i.op == Op::add) return 0;
  return i.op == Op::solve ? 1 : -1;
}

}  // namespace

void pack_buffers(Program& program) {
  std::vector<std::vector<Buffer>> begins(program.code.size()), ends(program.code.size());
  std::vector<Buffer> owner(program.buffers.size());
  const auto info = [&](Buffer b) -> BufferInfo& { return program.buffers[static_cast<std::size_t>(b)]; };
  for (std::size_t b = 0; b < owner.size(); ++b) owner[b] = static_cast<Buffer>(b);
  // Taking over: the result lives where the argument was, from the argument's first use on.
  for (std::size_t k = 0; k < program.code.size(); ++k) {
    const Instruction& i = program.code[k];
    const int which = overwrites(i);
    if (which < 0) continue;
    const Buffer from = i.args[static_cast<std::size_t>(which)];
    if (info(from).storage != Storage::arena || info(from).last != static_cast<int>(k)) continue;
    if (std::ranges::count(i.args, from) > 1) continue;
    const Buffer root = owner[static_cast<std::size_t>(from)];
    owner[static_cast<std::size_t>(i.out)] = root;
    info(root).last = info(i.out).last;
    info(root).entries = std::max(info(root).entries, info(i.out).entries);
  }
  for (std::size_t b = 0; b < owner.size(); ++b) {
    const BufferInfo& i = program.buffers[b];
    if (i.storage != Storage::arena || owner[b] != static_cast<Buffer>(b)) continue;
    begins[static_cast<std::size_t>(i.first)].push_back(static_cast<Buffer>(b));
    if (i.last != std::numeric_limits<int>::max()) ends[static_cast<std::size_t>(i.last)].push_back(static_cast<Buffer>(b));
  }
  Arena arena;
  for (std::size_t k = 0; k < program.code.size(); ++k) {
    for (const Buffer b : begins[k]) info(b).offset = arena.take(rounded(info(b).entries));
    for (const Buffer b : ends[k]) arena.give(info(b).offset, rounded(info(b).entries));
  }
  for (std::size_t b = 0; b < owner.size(); ++b) program.buffers[b].offset = info(owner[b]).offset;
  program.arena_entries = arena.end();
}

}  // namespace onestep::detail
