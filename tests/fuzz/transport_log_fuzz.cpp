// Fuzzes the logs of collective libraries and matrices of peer access that `ingot doctor --log` reads: any
// text gives findings, each with a text, and a remedy unless all is well.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "measure/doctor_log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const ingot::Finding& f : ingot::doctor::findings_of_log("log", text))
    if (f.text.empty() || (f.level == ingot::Finding::Level::ok) != f.remedy.empty()) std::abort();
  return 0;
}
