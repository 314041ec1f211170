// Regular expressions in task files: searching and replacing in answers as Python's re does it. PCRE2 reads
// the pattern; what the two write alike means the same (docs/evaluate.md). Matching is bounded, so a pattern
// that backtracks without end is an Error. Not thread-safe: one pattern, one thread.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class Pattern {
 public:
  /// Throws Error with the position of the mistake. `ignore_case`, `multiline`: re.IGNORECASE, re.MULTILINE.
  explicit Pattern(const std::string& pattern, bool ignore_case = false, bool multiline = false);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  /// re.findall: each match, or its group where the pattern has one; of several groups the first that is not
  /// empty. Bytes that are not UTF-8 count as U+FFFD.
  std::vector<std::string> find_all(std::string_view text) const;
  /// re.sub with a fixed text.
  std::string replace_all(std::string_view text, std::string_view by) const;
  /// re.split without groups.
  std::vector<std::string> split(std::string_view text) const;
  bool found_in(std::string_view text) const { return !find_all(text).empty(); }
  const std::string& text() const { return pattern_; }

 private:
  struct Code;
  struct Match;
  std::vector<Match> matches(const std::string& text) const;
  std::unique_ptr<Code> code_;
  std::string pattern_;
};

/// The text with every character that means something to a pattern escaped.
std::string escape_pattern(std::string_view text);

}  // namespace ingot
