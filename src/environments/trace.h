// The text of a teacher's reasoning, a step a line. A step that is checked has behind it "?", the check, the
// number that it must equal, and yes or no: everything that the verdict needs stands beside it. A slip is a
// step with a wrong number, whose check says no, before the right one.
#pragma once
#include <string>
#include <vector>

#include "environments/dice.h"
#include "environments/environment.h"

namespace ingot::environments {

class Steps {
 public:
  Steps(Dice& dice, TraceStyle style) : dice_(dice), style_(style) {}

  void line(const std::string& text) {
    if (!text_.empty()) text_ += '\n';
    text_ += text;
  }
  /// `claim(v)` says that the result is v; `check(v)` ends with what it gives and what that must equal.
  template <class Claim, class Check>
  void step(int64_t value, const Claim& claim, const Check& check) {
    if (!checked()) return line(claim(value));
    if (slips()) {
      const int64_t wrong =
          value + (dice_.once_in(2) || value == 0 ? 1 : -1) * dice_.between(1, value > 1 ? 2 : 1);
      line(claim(wrong) + " ? " + check(wrong) + " no");
    }
    line(claim(value) + " ? " + check(value) + " yes");
  }
  bool checked() const { return style_ == TraceStyle::checked || style_ == TraceStyle::slips; }
  /// Whether the next step shall go wrong first: one in four.
  bool slips() { return style_ == TraceStyle::slips && dice_.once_in(4); }
  const std::string& text() const { return text_; }

 private:
  Dice& dice_;
  TraceStyle style_;
  std::string text_;
};

inline std::string text_of(int64_t value) {
  return std::to_string(value);
}
inline std::string text_of(const std::string& value) {
  return value;
}
inline std::string text_of(char value) {
  return {value};
}

/// "3 1 4"
template <class List>
std::string joined(const List& list, const std::string& between) {
  std::string text;
  for (const auto& one : list) text += (text.empty() ? "" : between) + text_of(one);
  return text;
}

}  // namespace ingot::environments
