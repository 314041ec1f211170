// Ends generated text before the first of some strings: text that may be the beginning of one is held back.
// Pure state machine; not thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class StopStrings {
 public:
  /// Empty strings are an Error.
  explicit StopStrings(std::vector<std::string> strings);

  /// Adds text; returns what can be shown by now. Once a string has been found nothing more comes out.
  std::string push(std::string_view text);
  /// What was held back, at the end of the text.
  std::string finish();
  bool found() const { return found_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool found_ = false;
};

}  // namespace ingot
