// See text_io.h.
#include "apps/text_io.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_system.h"

namespace ingot {

std::string read_text_input(const std::string& path) {
  if (path != "-") return real_file_system().read(path);
  std::string text;
  char buffer[1 << 16];
  for (ssize_t n; (n = ::read(STDIN_FILENO, buffer, sizeof buffer)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("standard input cannot be read: {}", std::strerror(errno));
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

void drop_last_newline(std::string& text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ingot
