// Reading the optimizers' fixtures (tools/oracle/make_optim.py) and comparing with them.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/safetensors.h"
#include "support/support.h"

namespace ingot::test {

using nlohmann::json;
using Values = std::vector<double>;
using Floats = std::vector<float>;

/// One fixture: NAME.json beside NAME.safetensors.
class Oracle {
 public:
  explicit Oracle(const std::string& name)
      : notes(json::parse(real_file_system().read(test::fixture("optim/" + name + ".json")))),
        file_(real_file_system(), test::fixture("optim/" + name + ".safetensors")) {}

  const json notes;

  Shape shape(const std::string& name) const {
    Shape s;
    for (const int64_t extent : entry(name).shape) s.push_back(extent);
    return s;
  }
  Values values(const std::string& name) const {
    const SafetensorsEntry& e = entry(name);
    if (e.dtype == "F64") return read<double>(e);
    return e.dtype == "F32" ? widened(read<float>(e)) : widened(read<int32_t>(e));
  }

 private:
  const SafetensorsEntry& entry(const std::string& name) const {
    const SafetensorsEntry* e = file_.find(name);
    if (!e) fail("'{}' has no '{}'", file_.path(), name);
    return *e;
  }
  template <class T>
  std::vector<T> read(const SafetensorsEntry& e) const {
    std::vector<T> out(file_.data(e).size() / sizeof(T));
    std::memcpy(out.data(), file_.data(e).data(), out.size() * sizeof(T));
    return out;
  }
  template <class T>
  static Values widened(const std::vector<T>& x) {
    return {x.begin(), x.end()};
  }
  SafetensorsFile file_;
};

inline Floats narrowed(const Values& x) {
  Floats out;
  for (const double v : x) out.push_back(static_cast<float>(v));
  return out;
}

/// Part `index` of `x`, cut in parts of `size`.
template <class T>
std::vector<T> part(const std::vector<T>& x, int64_t index, size_t size) {
  const auto begin = x.begin() + index * static_cast<int64_t>(size);
  return {begin, begin + static_cast<int64_t>(size)};
}

/// max |x - y| / max |y|; the plain difference where y is zero.
template <class T>
double difference(const std::vector<T>& x, const Values& y) {
  EXPECT_EQ(x.size(), y.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(x[i]) - y[i]));
    size = std::max(size, std::abs(y[i]));
  }
  return size > 0 ? error / size : error;
}

inline bool kept(int64_t step) {
  return step == 1 || step == 2 || step == 10 || step == 25 || step == 50;
}

}  // namespace ingot::test
