// Fuzzes lines of digests.jsonl: what is read is written and read back as it was.
// tests/train/digest_lines_test.cpp replays tests/fuzz/corpus/digest_line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "train/digest_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingot;
  try {
    const DigestLine line = parse_digest_line(std::string(reinterpret_cast<const char*>(data), size), "line");
    const std::string written = std::visit([](const auto& l) { return to_json_line(l); }, line);
    if (parse_digest_line(written, "again") != line) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
