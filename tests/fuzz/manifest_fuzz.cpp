// Fuzzes the dataset manifest and the sampler state, which come from disk: any bytes are a value or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "data/manifest.h"
#include "data/sampler.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    ingot::data::parse_manifest(ingot::data::to_json(ingot::data::parse_manifest(text, "manifest")), "again");
  } catch (const ingot::Error&) {
  }
  try {
    const auto state = ingot::data::parse_sampler_state(text, "state");
    ingot::data::parse_sampler_state(to_json(ingot::data::next_phase(state, 64)), "again");
  } catch (const ingot::Error&) {
  }
  return 0;
}
