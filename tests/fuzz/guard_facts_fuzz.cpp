// Fuzzes what a guard reads of a run: any bytes give a report, facts or a journal entry, or are refused.
// tests/guard/rules_test.cpp replays tests/fuzz/corpus/guard_facts.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "guard/journal.h"
#include "report/failure_report.h"
#include "report/rank_status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  ingot::FailureReport::parse(text, 1);
  ingot::RankStatus::parse(text, 1);
  try {
    ingot::guard::Facts::parse(text);
  } catch (const ingot::Error&) {
  }
  try {
    ingot::guard::Entry::parse(text).json();
  } catch (const ingot::Error&) {
  }
  try {
    ingot::guard::Books::parse(text);
  } catch (const ingot::Error&) {
  }
  return 0;
}
