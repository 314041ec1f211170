// Stop strings: found wherever the pieces of the text are cut, and nothing of them is shown.
#include "infer/stop_strings.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot::test::stop_strings_test {

/// What is shown of `text` given in pieces of `size` bytes, "!" where a string was found.
std::string shown(const std::vector<std::string>& strings, const std::string& text, size_t size) {
  StopStrings stop(strings);
  std::string out;
  for (size_t at = 0; at < text.size() && !stop.found(); at += size) out += stop.push(text.substr(at, size));
  out += stop.finish();
  return out + (stop.found() ? "!" : "");
}

TEST(StopStrings, FoundHoweverTheTextIsCut) {
  for (size_t size = 1; size < 12; ++size) {
    EXPECT_EQ(shown({"\n\n"}, "one\ntwo\n\nthree", size), "one\ntwo!") << size;
    EXPECT_EQ(shown({"abab"}, "aababa", size), "a!") << size;
    EXPECT_EQ(shown({"END", "EN route"}, "the EN route", size), "the !") << size;
    EXPECT_EQ(shown({"END"}, "the EN", size), "the EN") << "held back, then shown";
    EXPECT_EQ(shown({}, "anything", size), "anything");
  }
  EXPECT_EQ(shown({"later", "now"}, "now and later", 99), "!");
}

TEST(StopStrings, ShowsTextAsSoonAsItIsCertain) {
  StopStrings stop({"xyz"});
  EXPECT_EQ(stop.push("abx"), "ab");
  EXPECT_EQ(stop.push("y"), "");
  EXPECT_EQ(stop.push("a"), "xya");
  EXPECT_EQ(stop.push("xyz tail"), "");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_THROW(StopStrings({""}), Error);
}

}  // namespace ingot::test::stop_strings_test
