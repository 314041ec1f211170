// Fuzzes tables of products: any text is a table or an Error, and a table prints and reads back alike.
// tests/device/product_table_test.cpp replays tests/fuzz/corpus/product_table.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "device/gemm/product_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const std::string printed = ingot::write_product_table(ingot::parse_product_table(text, "fuzz"));
    if (ingot::write_product_table(ingot::parse_product_table(printed, "printed")) != printed) std::abort();
  } catch (const ingot::Error&) {
  }
  return 0;
}
