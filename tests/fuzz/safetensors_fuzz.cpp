// Fuzzes the safetensors reader: any bytes give a header that tiles the file, or an Error.
#include <cstdlib>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto header = ingot::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    uint64_t bytes = header.bytes;
    for (const auto& entry : header.entries) bytes += entry.end - entry.begin;
    if (bytes != size) std::abort();
  } catch (const ingot::Error&) {
  }
  return 0;
}
