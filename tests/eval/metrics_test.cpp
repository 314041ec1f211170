// Metrics against enumeration and known values; texts as Python writes them; patterns; reasoning.
#include "eval/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "eval/filters.h"
#include "eval/python_text.h"
#include "eval/sha256.h"

namespace ingot::test::metrics_test {

TEST(Metrics, PassAtKIsTheShareOfSubsets) {
  for (int n = 1; n <= 9; ++n)
    for (int c = 0; c <= n; ++c)
      for (int k = 1; k <= n; ++k) {
        int subsets = 0, passing = 0;
        for (int mask = 0; mask < 1 << n; ++mask) {
          if (__builtin_popcount(static_cast<unsigned>(mask)) != k) continue;
          ++subsets;
          passing += (mask & ((1 << c) - 1)) != 0 ? 1 : 0;  // the first c answers are right
        }
        EXPECT_NEAR(pass_at_k(n, c, k), static_cast<double>(passing) / subsets, 1e-14) << n << c << k;
      }
  EXPECT_EQ(pass_at_k(10000, 0, 5000), 0);
}

TEST(Metrics, PythonsRandomNumbers) {
  PythonRandom zero(0), large(99);  // random.Random(0), random.Random(99)
  EXPECT_EQ(zero.random(), 0.8444218515250481);
  EXPECT_EQ(zero.random(), 0.7579544029403025);
  for (int i = 0; i < 700; ++i) large.random();
  EXPECT_EQ(large.random(), 0.4636590366411817);
}

TEST(Metrics, Errors) {
  const std::vector<double> v = {1, 0, 0, 1, 1};
  EXPECT_NEAR(*mean_error(v), 0.2449489742783178, 1e-16);
  EXPECT_FALSE(mean_error(std::vector<double>{1}));
  const std::vector<std::string> answers = {"4", "5", "5", "4", "6"};
  EXPECT_EQ(majority(answers), "4");  // of equally frequent ones the first
  const std::vector<std::vector<double>> scores = {{1, 0}, {1, 1}, {0, 0}};
  EXPECT_NEAR(*seed_noise(scores), std::abs(2.0 / 3 - 1.0 / 3) / std::sqrt(2), 1e-15);
  EXPECT_FALSE(seed_noise(std::vector<std::vector<double>>{{1}}));
}

TEST(Metrics, TextsOfPython) {
  EXPECT_EQ(python_float(1), "1.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(123456789012345680.0), "1.2345678901234568e+17");
  EXPECT_EQ(python_float(1e15), "1000000000000000.0");
  EXPECT_EQ(python_float(0.0001), "0.0001");
  EXPECT_EQ(python_float(-1.5e-7), "-1.5e-07");
  EXPECT_EQ(python_float(-INFINITY), "-inf");
  EXPECT_EQ(python_json({{"a", {1, 2.5, "é\n\x01"}}, {"b", TaskJson::array()}, {"c", TaskJson::object()}}),
            "{\"a\": [1, 2.5, \"é\\n\\u0001\"], \"b\": [], \"c\": {}}");
  EXPECT_EQ(python_json({{"a", {1}}}, 2), "{\n  \"a\": [\n    1\n  ]\n}");
  EXPECT_EQ(python_strip("\u00a0 \t a b \u2003\n"), "a b");
  EXPECT_EQ(characters("aé\u2003"), 3);
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(119, 'a')),
            "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
}

TEST(Metrics, Patterns) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(Pattern("(a)|(b)").find_all("xaby"), (Texts{"a", "b"}));
  EXPECT_EQ(Pattern("b*").find_all("abba"), (Texts{"", "bb", "", ""}));
  EXPECT_EQ(Pattern(",").replace_all("1,2,3", ""), "123");
  EXPECT_EQ(Pattern(R"(\s+)").split(" a  b"), (Texts{"", "a", "b"}));
  EXPECT_EQ(Pattern(R"(\w+)").find_all("über \xff"), (Texts{"über"}));
  EXPECT_THROW(Pattern("(a+)+$").find_all(std::string(40, 'a') + "b"), Error);
  EXPECT_THROW(Pattern("["), Error);
  EXPECT_EQ(Pattern(escape_pattern("a.b*(c)")).find_all("a.b*(c)").size(), 1u);
}

TEST(Metrics, ReasoningIsTakenOut) {
  const auto rest = [](const char* text) { return without_reasoning(text, "<think>", "</think>"); };
  EXPECT_EQ(rest("<think>2 and 2</think>\n\n4"), "4");
  EXPECT_EQ(rest("opened by the prompt</think> 4"), "4");  // as templates do that open it
  EXPECT_EQ(rest("<think>never ends: 5"), "");
  EXPECT_EQ(rest("<think>a</think> x <think>b"), "");
  EXPECT_EQ(rest("plain 4"), "plain 4");
}

}  // namespace ingot::test::metrics_test
