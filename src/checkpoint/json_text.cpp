// See json_text.h.
#include "checkpoint/json_text.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace ingot {

std::string quoted_json(const std::string& text) {
  using nlohmann::json;
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    fail("a name or text is not valid UTF-8: {}",
         json(text).dump(-1, ' ', false, json::error_handler_t::replace));
  }
}

}  // namespace ingot
