// Fuzzes lines of rollouts.jsonl and rollout_counts.jsonl: what is read is written and read back as it was.
// tests/post/rollout_corpus_test.cpp replays tests/fuzz/corpus/rollout_line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "post/rl/rollout_counts.h"

namespace {

using namespace ingot;

void both_kinds(const std::string& text) {
  try {
    const std::string written = to_json_line(parse_rollout_line(text, "line"));
    if (to_json_line(parse_rollout_line(written, "again")) != written) std::abort();
  } catch (const Error&) {
  }
  try {
    const RolloutCounts c = parse_rollout_counts(text, "line");
    if (parse_rollout_counts(to_json_line(c), "again") != c) std::abort();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  both_kinds(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
