// Fuzzes the reading of the API's JSON requests (server_requests.h).
#include <cstdint>

#include "fuzz/server_requests.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::fuzz::json_request({reinterpret_cast<const char*>(data), size});
  return 0;
}
