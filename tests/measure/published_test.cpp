// The papers' formulas give the papers' numbers, and the two-rate law a row that was measured at another
// length.
#include "measure/published.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ingot::test::published_test {

using namespace published;

TEST(Published, FormulasGiveThePrintedNumbers) {
  const std::vector<Row> rows = all();
  EXPECT_GE(rows.size(), 50u);
  for (const Row& r : rows)
    EXPECT_LE(std::abs(r.residual()), r.bar) << r.what << ": " << r.formula << " for " << r.printed;
}

TEST(Published, ExactOnesHaveNarrowBars) {
  for (const Row& r : all())
    if (!r.inferred) {
      EXPECT_LE(r.bar, 0.015) << r.what;
    }
}

/// TFLOP/s at another length, from the rate `linear` of everything but attention and that of attention; `lin`
/// and `core` are their FLOPs a token.
double two_rates(double lin, double core, double linear, double attention) {
  return (lin + core) / (lin / linear + core / attention);
}

/// Rate of attention over forward and backward, whose FLOPs count 1 and 2.5, of which 3 count.
double attention_rate(double forward, double backward) {
  return 3 / (1 / forward + 2.5 / backward);
}

/// Table 11's row at 128K from its row at 4K and Table 9: 974 TFLOP/s at 4K, 1150 at 128K.
TEST(Published, LongSequencesFollowFromTwoRates) {
  const double lin = 129.1e9, short_core = 148.03e9 - lin, long_core = 734.7e9 - lin;
  const double at_4k = attention_rate(1324, 1083), at_16k = attention_rate(1698, 1298);
  EXPECT_NEAR(at_4k, 979, 1);
  EXPECT_NEAR(at_16k, 1193, 1);
  // The rate of everything else, so that the row at 4K comes out.
  const double linear = lin / ((lin + short_core) / 974 - short_core / at_4k);
  EXPECT_NEAR(two_rates(lin, short_core, linear, at_4k), 974, 1e-6);
  EXPECT_NEAR(two_rates(lin, long_core, linear, at_16k), 1150, 0.02 * 1150);
}

TEST(Published, TextNamesWhatIsInferred) {
  const std::string text = to_text(all());
  EXPECT_NE(text.find("Llama-405B total"), std::string::npos);
  EXPECT_NE(text.find("composition inferred"), std::string::npos);
  EXPECT_NE(text.find("SmolLM3 ledger"), std::string::npos);
}

}  // namespace ingot::test::published_test
