// Scores over the rows of a task, and how sure they are: means, weighted perplexities, pass@k and majority
// over several answers, standard errors as lm-evaluation-harness computes them. Pure functions; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ingot {

double mean(std::span<const double> values);
/// With n - 1; values has at least two.
double sample_deviation(std::span<const double> values);
/// sample_deviation / sqrt(n); nothing for fewer than two values.
std::optional<double> mean_error(std::span<const double> values);

/// exp(-mean): what one token of a kind costs where values are log-probabilities of rows.
double perplexity(std::span<const double> values);
/// The deviation of perplexity() over 100,000 resamplings with Python's random numbers: the harness's own
/// digits. Nothing for fewer than two values.
std::optional<double> bootstrapped_perplexity_error(std::span<const double> values);

/// Pairs of log-probability and weight (words, bytes): exp(-sum / sum), and -sum / sum / log 2.
double weighted_perplexity(std::span<const std::pair<double, double>> values);
double bits_per_unit(std::span<const std::pair<double, double>> values);

/// The chance that at least one of k answers, drawn without replacement from n of which c are right, is:
/// 1 - C(n - c, k) / C(n, k). 0 <= c <= n, 1 <= k <= n.
double pass_at_k(int64_t n, int64_t c, int64_t k);
/// The answer that most of them are; of equally frequent ones the first to come.
const std::string& majority(std::span<const std::string> answers);

/// The deviation over samples of the score that each alone gives the task: scores[row][sample]. What a run
/// with another seed differs by. Nothing for fewer than two samples.
std::optional<double> seed_noise(std::span<const std::vector<double>> scores);

/// Python's random.Random(seed), as far as it is needed: MT19937, random() with 53 bits.
class PythonRandom {
 public:
  explicit PythonRandom(uint32_t seed);
  double random();

 private:
  uint32_t next();
  uint32_t state_[624];
  int at_ = 624;
};

}  // namespace ingot
