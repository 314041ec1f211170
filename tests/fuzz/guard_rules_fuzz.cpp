// Fuzzes a guard's rule file and the language of its signs: any bytes give rules or an Error.
// tests/guard/rules_test.cpp replays tests/fuzz/corpus/guard_rules.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "guard/rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    ingot::guard::parse_rules(text, "fuzz");
  } catch (const ingot::Error&) {
  }
  try {
    const ingot::guard::Expression e = ingot::guard::Expression::parse(text);
    e.contradiction();
    e.holds({}, [](const std::string&, double) { return int64_t{1}; });
  } catch (const ingot::Error&) {
  }
  return 0;
}
