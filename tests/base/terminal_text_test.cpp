// Text for a terminal: nothing that a terminal would obey comes through.
#include "base/terminal_text.h"

#include <gtest/gtest.h>

namespace ingot::test::terminal_text_test {

TEST(TerminalText, ControlCharactersAreEscaped) {
  EXPECT_EQ(terminal_text("plain text, naïve 日本 🙂\n\tindented\r\n"),
            "plain text, naïve 日本 🙂\n\tindented\r\n");
  EXPECT_EQ(terminal_text("\x1b[31mred\x1b]0;title\a"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(terminal_text(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(terminal_text("over\rwritten\b\x7f"), "over\\x0dwritten\\x08\\x7f");
  EXPECT_EQ(terminal_text("\xc2\x9b"
                          "31m"),
            "\\u{9b}31m")
      << "C1: one character that begins a sequence";
  EXPECT_EQ(terminal_text("\xe2\x80\xaetxt.exe"), "\\u{202e}txt.exe");
  EXPECT_EQ(terminal_text("\xff\x9b cut \xf0\x9f"), "\\xff\\x9b cut \\xf0\\x9f");
}

TEST(TerminalText, EveryByteAndPairIsSafe) {
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string text = {static_cast<char>(a), static_cast<char>(b)};
      const std::string shown = terminal_text(text);
      for (size_t i = 0; i < shown.size(); ++i) {
        const auto c = static_cast<unsigned char>(shown[i]);
        const bool allowed = c == '\n' || c == '\t' || (c == '\r' && shown[i + 1] == '\n');
        ASSERT_FALSE((c < 0x20 && !allowed) || c == 0x7f) << a << " " << b;
        ASSERT_FALSE(c == 0xc2 && static_cast<unsigned char>(shown[i + 1]) < 0xa0) << a << " " << b;
      }
    }
}

}  // namespace ingot::test::terminal_text_test
