// Pages for Prometheus: their text, what it escapes, and that the tests' reader of the format is strict.
#include "report/prometheus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/prometheus_grammar.h"

namespace ingot::test::prometheus_test {

TEST(Prometheus, APageHasHelpTypeAndSamplesOfEachMetric) {
  PrometheusPage page;
  page.one("a_seconds", MetricKind::gauge, "A back\\slash,\na newline.", 1.5);
  page.begin("b_total", MetricKind::counter, "By name.");
  page.add(1e6, {{"name", "a \"quoted\" \\ name\n"}, {"more", "grüße"}});
  page.add(3, {{"name", ""}});
  page.begin("c", MetricKind::histogram, "C.");
  page.add(1, {{"le", "0.5"}}, "_bucket");
  page.add(4, {{"le", "+Inf"}}, "_bucket");
  page.add(7.25, {}, "_sum");
  page.add(4, {}, "_count");
  EXPECT_EQ(page.text(),
            "# HELP a_seconds A back\\\\slash,\\na newline.\n# TYPE a_seconds gauge\na_seconds 1.5\n"
            "# HELP b_total By name.\n# TYPE b_total counter\n"
            "b_total{name=\"a \\\"quoted\\\" \\\\ name\\n\",more=\"grüße\"} 1000000\nb_total{name=\"\"} 3\n"
            "# HELP c C.\n# TYPE c histogram\nc_bucket{le=\"0.5\"} 1\nc_bucket{le=\"+Inf\"} 4\nc_sum 7.25\n"
            "c_count 4\n");
  const PrometheusText read = read_prometheus(page.text());
  EXPECT_EQ(read.problems, "");
  EXPECT_EQ(read.samples.size(), 7U);
}

TEST(Prometheus, EveryNumberIsOneOfTheFormat) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  PrometheusPage page;
  page.begin("x", MetricKind::gauge, "X.");
  int n = 0;
  const auto values = {0.0, -0.0, 1e300, -1e-300, 0x1p53, 123456789012345.0, 0.1, kInfinity, -kInfinity};
  for (const double value : values) page.add(value, {{"n", std::to_string(n++)}});
  page.add(std::nan(""), {{"n", "nan"}});
  const PrometheusText read = read_prometheus(page.text());
  EXPECT_EQ(read.problems, "");
  n = 0;
  for (const double value : values) EXPECT_EQ(read.samples.at("x{n=\"" + std::to_string(n++) + "\"}"), value);
  EXPECT_TRUE(std::isnan(read.samples.at("x{n=\"nan\"}")));
}

TEST(Prometheus, TheReaderRefusesWhatIsNotOfTheFormat) {
  const std::string x = "# HELP x X.\n# TYPE x gauge\n";
  for (const std::string& bad : {std::string("x 1\n"), x + "x 1", x + "x nan\n", x + "x 1 2\n",
                                 x + "x{a=b} 1\n", x + "x{a=\"\\t\"} 1\n", x + "x 1\nx 2\n", x + "y 1\n",
                                 x + x, std::string("# HELP x X.\n# TYPE x counter\n"),
                                 std::string("# TYPE x gauge\n"), x + "\n", x + "1x 1\n", x + "x{} 1\n"})
    EXPECT_NE(read_prometheus(bad).problems, "") << bad;
  EXPECT_EQ(read_prometheus(x + "x 1\nx{a=\"b\"} -2.5e-07\n").problems, "");
  EXPECT_EQ(read_prometheus("").problems, "");
}

}  // namespace ingot::test::prometheus_test
