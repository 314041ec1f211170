// A fuzzer's corpus replayed in every build: what fuzzing found once stays checked where no fuzzer runs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace ingot::test {

/// Runs `input`, the entry of a fuzzer, on each file of tests/fuzz/corpus/`name` as it is and on `changes`
/// versions of it in which a few bytes were changed, doubled or cut off; the versions are the same in every
/// run. Expects that the entry returns 0. Returns the number of files.
int replay_corpus(const std::string& name, int (*input)(const uint8_t*, size_t), int changes);

}  // namespace ingot::test
