// Fuzzes cluster files: any text is a cluster or an Error, and a cluster prints and reads back alike.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "measure/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const std::string printed = ingot::print_config(ingot::cluster_from_text(text, "fuzz"));
    if (ingot::print_config(ingot::cluster_from_text(printed, "printed")) != printed) std::abort();
  } catch (const ingot::Error&) {
  }
  return 0;
}
