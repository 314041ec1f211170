// Rows of preferences in TRL's forms, and each fault by its line.
#include "chat/preference_row.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot::test::preference_row_test {
namespace {

std::string refused(const std::string& row) {
  try {
    chat::read_preference(row, "pairs.jsonl:3");
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

}  // namespace

TEST(PreferenceRow, HasTrlsForms) {
  const auto explicit_prompt = chat::read_preference(
      R"({"prompt": [{"role": "user", "content": "2+2"}], "chosen": [{"role": "assistant", "content": "4"}],
          "rejected": [{"role": "assistant", "content": "5", "reasoning_content": "hm"}], "tools": null})",
      "row");
  const auto implicit_prompt = chat::read_preference(
      R"({"chosen": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}],
          "rejected": [{"role": "user", "content": "2+2"},
                       {"role": "assistant", "content": "5", "thinking": "hm"}]})",
      "row");
  for (const auto* row : {&explicit_prompt, &implicit_prompt}) {
    EXPECT_FALSE(row->plain);
    ASSERT_EQ(row->chosen->messages.size(), 2u);
    EXPECT_FALSE(row->chosen->messages[0].in_loss);
    EXPECT_TRUE(row->chosen->messages[1].in_loss);
    EXPECT_EQ(row->chosen->messages[1].content, "4");
    EXPECT_EQ(row->rejected->messages[1].reasoning_content, "hm");
  }
  const auto plain = chat::read_preference(R"({"prompt": "2+2=", "chosen": "4", "rejected": "5"})", "row");
  EXPECT_TRUE(plain.plain);
  EXPECT_EQ(plain.rejected->messages.at(1).content, "5");
  const auto good = chat::read_preference(R"({"prompt": "2+2=", "completion": "4", "label": true})", "row"),
             bad = chat::read_preference(R"({"prompt": "2+2=", "completion": "5", "label": false})", "row");
  EXPECT_TRUE(good.chosen && !good.rejected);
  EXPECT_TRUE(!bad.chosen && bad.rejected);
}

TEST(PreferenceRow, FaultsNameTheLine) {
  const auto contains = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_NE(text.find("pairs.jsonl:3"), std::string::npos) << text;
  };
  contains(refused("{"), "no valid JSON");
  contains(refused("[]"), "expected an object");
  contains(refused(R"({"prompt": "a"})"), "is no preference");
  contains(refused(R"({"prompt": "a", "chosen": "b", "rejected": "b"})"), "are equal");
  contains(refused(R"({"prompt": "a", "chosen": "", "rejected": "b"})"), "'chosen' is empty");
  contains(refused(R"({"prompt": "a", "chosen": "b", "rejected": ["c"]})"),
           "expected a string as 'prompt' is");
  contains(refused(R"({"chosen": "b", "rejected": "c"})"), "the row has no 'prompt'");
  contains(refused(
               R"({"chosen": [{"role": "user", "content": "x"}],
                       "rejected": [{"role": "user", "content": "y"}]})"),
           "do not begin with the same message");
  contains(
      refused(R"({"chosen": [{"role": "user", "content": "x"}], "rejected": [{"role": "user", "content": "x"},
                       {"role": "assistant", "content": "y"}]})"),
      "is all that both say");
  contains(refused(R"({"prompt": [{"role": "user", "content": null}], "chosen": [{"role": "assistant",
                       "content": "x"}], "rejected": [{"role": "assistant", "content": "y"}]})"),
           "'content' of the user is null");
}

}  // namespace ingot::test::preference_row_test
