// Fuzzes the HTTP server with the bytes of one client (server_requests.h).
#include <cstdint>

#include "fuzz/server_requests.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ingot::fuzz::http_request({reinterpret_cast<const char*>(data), size});
  return 0;
}
