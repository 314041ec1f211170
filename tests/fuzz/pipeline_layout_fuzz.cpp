// Fuzzes pipeline layouts: any text is a layout or an Error, and a layout prints and reads back alike.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "parallel/pipeline_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 3, size - 3);
  try {
    const ingot::PipelineLayout p =
        ingot::parse_pipeline_layout(text, data[0] % 8, data[1] % 64, data[2] % 4);
    if (!(ingot::parse_pipeline_layout(p.str(), data[0] % 8, data[1] % 64, data[2] % 4) == p)) std::abort();
  } catch (const ingot::Error&) {
  }
  return 0;
}
