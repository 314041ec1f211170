// See invocation.h.
#include "base/invocation.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace ingot {
namespace {

constexpr std::string_view kName = "ingot";

struct Invocation {
  std::string name{kName};
  std::vector<std::string> subcommands;
};
Invocation& invocation() {
  static Invocation value;
  return value;
}

/// The first program "ingot" on the path is the one that runs.
bool found_on_path() {
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "";
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::filesystem::path program = std::filesystem::path(rest.substr(0, end)) / kName;
    rest.remove_prefix(std::min(end + 1, rest.size()));
    std::error_code error;
    if (!std::filesystem::is_regular_file(program, error)) continue;
    return std::filesystem::equivalent(program, "/proc/self/exe", error) && !error;
  }
  return false;
}

bool ends_a_word(std::string_view text, size_t at) {
  return at >= text.size() || !(std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
}

/// text[at] begins a subcommand or an option.
bool command_at(std::string_view text, size_t at) {
  if (text.substr(at, 2) == "--") return true;
  return std::any_of(invocation().subcommands.begin(), invocation().subcommands.end(),
                     [&](const std::string& s) {
                       return text.substr(at, s.size()) == s && ends_a_word(text, at + s.size());
                     });
}

}  // namespace

std::string shell_word(std::string_view text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 ||
           std::string_view("/._-+,:@%=").find(static_cast<char>(c)) != std::string::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void set_invocation(const std::string& called, std::vector<std::string> subcommands) {
  const bool by_path = called.find('/') == std::string::npos || found_on_path();
  invocation() = {by_path ? std::string(kName) : shell_word(called), std::move(subcommands)};
}

std::string as_typed(std::string_view text) {
  if (invocation().name == kName) return std::string(text);
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const bool begins = at == 0 || std::string_view(" \n`'\"(").find(text[at - 1]) != std::string::npos;
    const size_t next = at + kName.size() + 1;
    if (begins && text.substr(at, kName.size()) == kName && text.substr(next - 1, 1) == " " &&
        command_at(text, next)) {
      result += invocation().name + " ";
      at = next;
    } else {
      result += text[at++];
    }
  }
  return result;
}

}  // namespace ingot
