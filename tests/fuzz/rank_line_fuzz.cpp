// Fuzzes lines of ranks.jsonl: what is read is written and read back as it was.
// tests/train/rank_lines_test.cpp replays tests/fuzz/corpus/rank_line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "train/rank_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  try {
    const RankTimes times = parse_rank_times(std::string(reinterpret_cast<const char*>(data), size), "line");
    if (parse_rank_times(to_json_line(times), "again") != times) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
