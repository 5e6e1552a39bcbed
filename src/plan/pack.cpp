// Places for buffers in one arena: a sweep over the instructions, each buffer in the first gap between those in use. An
// instruction that can run in place takes over the buffer of an argument that is not needed after it.
#include <algorithm>
#include <map>
#include <numeric>

#include "graph/rules.h"
#include "plan/program.h"

namespace onestep::detail {

void pack_buffers(Program& program) {
  Indexed<BufferInfo>& buffers = program.buffers;
  Indexed<Buffer> owner(buffers.size());
  std::iota(owner.begin(), owner.end(), 0);
  // Taking over: the result lives where the argument was, from the argument's first use on.
  for (int k = 0; k < std::ssize(program.code); ++k) {
    const Instruction& i = program.code[static_cast<std::size_t>(k)];
    const bool on_first = is_factor(i.op) || i.op == Op::add;
    if (i.is_loop() || !(on_first || i.op == Op::solve)) continue;
    const Buffer from = i.args[on_first ? 0 : 1];
    if (buffers[from].storage != Storage::arena || buffers[from].last != k || std::ranges::count(i.args, from) > 1) continue;
    BufferInfo& root = buffers[owner[i.out] = owner[from]];
    root.last = buffers[i.out].last;
    root.entries = std::max(root.entries, buffers[i.out].entries);
  }
  Indexed<std::vector<Buffer>> begins(program.code.size()), ends(program.code.size());
  for (Buffer b = 0; b < std::ssize(buffers); ++b) {
    if (buffers[b].storage != Storage::arena || owner[b] != b || buffers[b].entries == 0) continue;
    begins[buffers[b].first].push_back(b);
    if (buffers[b].last != for_ever) ends[buffers[b].last].push_back(b);
  }
  std::map<std::size_t, std::size_t> in_use;  // from, to
  for (std::size_t k = 0; k < program.code.size(); ++k) {
    for (const Buffer b : begins[k]) {
      const std::size_t size = padded(buffers[b].entries);
      std::size_t& place = buffers[b].offset = 0;
      for (auto next = in_use.begin(); next != in_use.end() && next->first < place + size; ++next) place = next->second;
      in_use.emplace(place, place + size);
      program.arena_entries = std::max(program.arena_entries, place + size);
    }
    for (const Buffer b : ends[k]) in_use.erase(buffers[b].offset);
  }
  for (std::size_t b = 0; b < owner.size(); ++b) buffers[b].offset = buffers[owner[b]].offset;
}

}  // namespace onestep::detail
