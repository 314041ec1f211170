// A regular expression in the dialect of tokenizer.json (Oniguruma's), matched by PCRE2's JIT. What the two
// engines would read differently is rewritten (\s is exactly Unicode White_Space) or refused by name (\w, \h,
// {n}+, ...), so a pattern that compiles here splits text as Hugging Face's library does. Matching is
// bounded: a pattern that backtracks without end is an Error, not a hang.
#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ingot {

/// What one thread needs for matching; never shared by two calls at once.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;
  /// Starts the budget of processor time for a text of `bytes` bytes: hundreds of times what a sane pattern
  /// takes.
  void begin_text(size_t bytes);

 private:
  friend class Regex;
  struct Pcre;
  std::unique_ptr<Pcre> pcre_;
  void check_budget(const std::string& pattern, size_t bytes);
  std::chrono::nanoseconds budget_{};
  std::chrono::nanoseconds cpu_begin_{};
  std::chrono::steady_clock::time_point next_look_;  // before it, the budget cannot be spent
  unsigned calls_ = 0;
};

class Regex {
 public:
  /// Compiles `pattern` (or the text itself if `literal`). Throws Error with the position of the mistake.
  explicit Regex(const std::string& pattern, bool literal = false);
  ~Regex();
  Regex(Regex&&) noexcept;

  struct Match {
    size_t begin, end;
  };
  /// Is there a match that starts the search exactly at `at` (<= size)? `text` is valid UTF-8, `at` on a
  /// character.
  bool match_at(std::string_view text, size_t at, RegexScratch& scratch, Match& match) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string pattern_;
};

/// The pattern in PCRE2's dialect; exposed for its test.
std::string to_pcre2_dialect(const std::string& pattern);

}  // namespace ingot
