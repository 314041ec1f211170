// Text of which every byte has an origin: what templates compute with, so that a rendering can say who wrote
// which part. Positions are bytes; where Python counts characters, functions say so.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::chat::jinja {

/// Who wrote something; 0: the template. The caller numbers the others below kGenerated.
using Origin = uint32_t;
inline constexpr Origin kGenerated = 1u << 31;  ///< inside of {% generation %}

class Text {
 public:
  struct Run {
    size_t end;  ///< the run begins where the one before ends
    Origin origin;
    bool operator==(const Run&) const = default;
  };

  Text() = default;
  explicit Text(std::string_view bytes, Origin origin = 0) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  const std::vector<Run>& runs() const { return runs_; }
  bool safe() const { return safe_; }  ///< went through `safe` or `escape`
  void set_safe() { safe_ = true; }

  void append(std::string_view bytes, Origin origin);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);
  /// Sets the bit of kGenerated everywhere.
  void mark_generated();

  Text slice(size_t begin, size_t end) const;
  Origin origin_at(size_t byte) const;  ///< of the last run for `byte` at the end; 0 of an empty text

 private:
  std::string bytes_;
  std::vector<Run> runs_;
  bool safe_ = false;
};

/// Python's str.isspace() for one character.
bool is_space(uint32_t code_point);
/// Length in bytes of the character at `at`; a byte that is no UTF-8 is a character.
size_t character_length(std::string_view text, size_t at, uint32_t* code_point = nullptr);
size_t count_characters(std::string_view text);
/// Byte where character number `index` begins; the size for index >= the number of characters.
size_t byte_of_character(std::string_view text, size_t index);

/// str.strip, lstrip, rstrip; `characters` null: white space.
Text strip(const Text& text, bool left, bool right, const std::string* characters = nullptr);
/// str.replace; count < 0: all.
Text replace(const Text& text, std::string_view old, const Text& with, int64_t count);
/// str.split and rsplit with a separator; limit < 0: none.
std::vector<Text> split(const Text& text, std::string_view separator, int64_t limit, bool from_right);
/// str.split and rsplit at white space.
std::vector<Text> split_at_space(const Text& text, int64_t limit, bool from_right);
std::vector<Text> split_lines(const Text& text, bool keep_ends);

enum class LetterCase : uint8_t { lower, upper, title, capital, swapped };
/// str.lower, upper, title, capitalize, swapcase for letters whose case is one other letter.
Text with_case(const Text& text, LetterCase letter_case);

/// &, <, >, ", ' as HTML writes them.
Text escape_html(const Text& text);

}  // namespace ingot::chat::jinja
