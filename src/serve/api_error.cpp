// See api_error.h.
#include "serve/api_error.h"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace ingot::serve {

std::string error_json(const ApiError& error) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  const char* type = error.status == 401 || error.status == 403 ? "authentication_error"
                     : error.status == 429                      ? "rate_limit_error"
                     : error.status >= 500                      ? "server_error"
                                                                : "invalid_request_error";
  const Json all = {{"error",
                     {{"message", error.what()},
                      {"type", type},
                      {"param", or_null(error.param)},
                      {"code", or_null(error.code)}}}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpMessage error_message(const ApiError& error) {
  HttpMessage m{error.status, "application/json", error_json(error), {}};
  if (error.status == 429 || error.status == 503) m.fields.emplace_back("Retry-After", "1");
  if (error.status == 401) m.fields.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 405) m.fields.emplace_back("Allow", "GET, POST");
  return m;
}

bool equal_in_constant_time(const std::string& given, const std::string& expected) {
  volatile uint8_t different = given.size() == expected.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const char other = expected.empty() ? '\0' : expected[i % expected.size()];
    different = static_cast<uint8_t>(different | static_cast<uint8_t>(given[i] ^ other));
  }
  return different == 0;
}

}  // namespace ingot::serve
