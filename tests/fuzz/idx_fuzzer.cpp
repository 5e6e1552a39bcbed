// The fuzzer of IDX files.
#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  onestep::test::fuzz_idx({reinterpret_cast<const char*>(data), size});
  return 0;
}
