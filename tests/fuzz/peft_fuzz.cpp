// Fuzzes PEFT's adapter_config.json: any text is a plain LoRA that a model can have, or an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "exchange/peft.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ingot::LoraConfig lora =
        ingot::lora_from_peft(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    if (lora.rank < 1 || !std::isfinite(lora.scale()) || !(lora.scale() > 0)) std::abort();
    if (!lora.targets.empty()) std::abort();
  } catch (const ingot::Error&) {
  }
  return 0;
}
