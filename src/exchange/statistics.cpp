// See statistics.h.
#include "exchange/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "base/parallel.h"
#include "exchange/half.h"

namespace ingot {
namespace {

constexpr int64_t kChunk = 1 << 18;
constexpr double kFarOff = 20;

template <class T>
double value_of(const std::byte* at) {
  T x;
  std::memcpy(&x, at, sizeof(T));
  if constexpr (std::is_same_v<T, bf16>)
    return static_cast<double>(to_float(x));
  else if constexpr (std::is_same_v<T, uint16_t>)
    return static_cast<double>(from_half(x));
  else
    return static_cast<double>(x);
}

template <class T>
TensorStatistics measure_range(const std::byte* data, int64_t begin, int64_t end) {
  TensorStatistics s;
  s.count = end - begin;
  for (int64_t i = begin; i < end; ++i) {
    const double x = value_of<T>(data + static_cast<size_t>(i) * sizeof(T));
    s.sum += x;
    s.squares += x * x;
    s.largest = std::max(s.largest, std::abs(x));
  }
  if (std::isfinite(s.squares) && std::isfinite(s.sum)) return s;
  for (int64_t i = end; i-- > begin;)
    if (!std::isfinite(value_of<T>(data + static_cast<size_t>(i) * sizeof(T)))) s.first_bad = i;
  return s;
}

template <class T>
TensorStatistics measure_all(std::span<const std::byte> data) {
  const auto count = static_cast<int64_t>(data.size() / sizeof(T));
  std::vector<TensorStatistics> parts(static_cast<size_t>((count + kChunk - 1) / kChunk));
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      parts[static_cast<size_t>(p)] =
          measure_range<T>(data.data(), p * kChunk, std::min(count, (p + 1) * kChunk));
  });
  TensorStatistics all;
  for (const TensorStatistics& part : parts) all.add(part);
  return all;
}

std::string folded(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    const bool begins = i == 0 || name[i - 1] == '.';
    size_t end = i;
    while (begins && end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (end > i && (end == name.size() || name[end] == '.')) {
      out += '*';
      i = end;
    } else {
      out += name[i++];
    }
  }
  return out;
}

}  // namespace

double TensorStatistics::deviation() const {
  return count > 0 ? std::sqrt(std::max(0.0, squares / static_cast<double>(count) - mean() * mean())) : 0;
}

void TensorStatistics::add(const TensorStatistics& o) {
  count += o.count;
  sum += o.sum;
  squares += o.squares;
  largest = std::max(largest, o.largest);
  if (first_bad < 0) first_bad = o.first_bad;
}

TensorStatistics measure(std::span<const std::byte> data, const std::string& dtype) {
  if (dtype == "F32") return measure_all<float>(data);
  if (dtype == "BF16") return measure_all<bf16>(data);
  if (dtype == "F16") return measure_all<uint16_t>(data);
  INGOT_CHECK(dtype == "F64", "no statistics of {}", dtype);
  return measure_all<double>(data);
}

void StatisticsTable::add(const std::string& name, const TensorStatistics& s) {
  Entry& e = entries_[folded(name)];
  e.all.add(s);
  e.deviations.emplace_back(name, s.deviation());
  if (s.largest == 0 && s.count > 1) e.zeros.push_back(name);
}

std::string StatisticsTable::text() const {
  std::string text = fmt::format("{:<60} {:>7} {:>13} {:>11} {:>11} {:>11}\n", "tensor", "count", "elements",
                                 "mean", "std", "largest");
  for (const auto& [name, e] : entries_)
    text += fmt::format("{:<60} {:>7} {:>13} {:>11.3e} {:>11.3e} {:>11.3e}\n", name, e.deviations.size(),
                        e.all.count, e.all.mean(), e.all.deviation(), e.all.largest);
  return text;
}

std::vector<std::string> StatisticsTable::suspicions() const {
  std::vector<std::string> lines;
  for (const auto& [folded_name, e] : entries_) {
    const bool matrix = folded_name.ends_with("weight") || folded_name.ends_with("proj");
    for (const std::string& name : e.zeros)
      if (matrix) lines.push_back(fmt::format("'{}' holds only zeros", name));
    if (e.deviations.size() < 3) continue;
    std::vector<double> sorted;
    for (const auto& [name, d] : e.deviations) sorted.push_back(d);
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2),
                     sorted.end());
    const double median = sorted[sorted.size() / 2];
    for (const auto& [name, d] : e.deviations)
      if (d > 0 && median > 0 && (d > kFarOff * median || d * kFarOff < median))
        lines.push_back(
            fmt::format("'{}' has deviation {:.3e}, in other layers it is around {:.3e}", name, d, median));
  }
  return lines;
}

}  // namespace ingot
