// See stop_strings.h.
#include "infer/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

/// Length of the longest end of `text` with which `string` begins, shorter than the string itself.
size_t begun(std::string_view text, std::string_view string) {
  size_t n = std::min(text.size(), string.size() - 1);
  while (n > 0 && !string.starts_with(text.substr(text.size() - n))) --n;
  return n;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& s : strings_)
    if (s.empty()) throw Error("a stop string is empty", "give --stop a text that ends the generation");
}

std::string StopStrings::push(std::string_view text) {
  if (found_) return "";
  held_ += text;
  size_t first = std::string::npos, keep = 0;
  for (const std::string& s : strings_) {
    first = std::min(first, held_.find(s));
    keep = std::max(keep, begun(held_, s));
  }
  found_ = first != std::string::npos;
  std::string out = held_.substr(0, found_ ? first : held_.size() - keep);
  held_.erase(0, found_ ? held_.size() : out.size());
  return out;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace ingot
