// The problems of a phase that asks a fixed set: those of a pool whose pass rate, under the policy that the
// phase began with, lies in a range (prior pass rate, [ZAYA1-8B] §IV-B1). Not thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

class ProblemPool {
 public:
  struct Entry {
    uint64_t number = 0;
    int64_t difficulty = 0;
    bool operator==(const Entry&) const = default;
  };
  explicit ProblemPool(size_t environments) : kept_(environments) {}
  bool empty() const;
  /// Keeps a problem if each of its pass rates lies in [least, most].
  void offer(size_t environment, const Entry& entry, const std::vector<double>& pass_rates, double least,
             double most);
  /// Problem `draw` of an environment: the kept ones in order, over and over. Not of one without any.
  const Entry& problem(size_t environment, int64_t draw) const;
  int64_t kept(size_t environment) const { return static_cast<int64_t>(kept_[environment].size()); }
  std::string json() const;
  /// Error where the text is damaged or of another number of environments.
  void restore(const std::string& json, const std::string& where);

 private:
  std::vector<std::vector<Entry>> kept_;
};

}  // namespace ingot
