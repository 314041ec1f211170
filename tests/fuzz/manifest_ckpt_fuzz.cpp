// Fuzzes the checkpoint manifest past its checksum: any text gives a manifest that survives a round trip, or
// an Error.
#include <cstdlib>

#include "checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const ingot::Manifest manifest = ingot::parse_manifest(text, "fuzz", true);
    const std::string encoded = ingot::encode_manifest(manifest);
    if (ingot::encode_manifest(ingot::parse_manifest(encoded, "fuzz")) != encoded) std::abort();
  } catch (const ingot::Error&) {
  }
  return 0;
}
