// Mean, standard deviation and largest magnitude of the tensors of an import or export, to see whether the
// numbers are weights.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace ingot {

struct TensorStatistics {
  int64_t count = 0;
  double sum = 0, squares = 0, largest = 0;  ///< of the values, of their squares, of their magnitudes
  int64_t first_bad = -1;                    ///< index of the first NaN or infinity, -1: none
  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
  double deviation() const;
  void add(const TensorStatistics& other);
};

/// Statistics of elements of a safetensors type (F32, BF16, F16 or F64; any alignment). The same for any
/// number of threads.
TensorStatistics measure(std::span<const std::byte> data, const std::string& dtype);

/// A table with one line for all tensors whose names differ only in numbers ("layers.*.mlp.down.weight").
class StatisticsTable {
 public:
  void add(const std::string& name, const TensorStatistics& s);
  std::string text() const;
  /// Sentences about matrices of zeros, and about tensors whose deviation is 20 times above or below the
  /// median of the same tensor over layers.
  std::vector<std::string> suspicions() const;

 private:
  struct Entry {
    TensorStatistics all;
    std::vector<std::pair<std::string, double>> deviations;
    std::vector<std::string> zeros;
  };
  std::map<std::string, Entry> entries_;
};

}  // namespace ingot
